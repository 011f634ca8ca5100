"""A branch is a chat that can go on, wherever it was cut."""

from __future__ import annotations

import pytest

from sessions_app import intake, runner
from sessions_app.invariants import check_invariants
from sessions_app.models import Chat, Message
from tests import factories
from tests.scripted.behaviour import Behaviour, Call

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("endpoint")]


def test_it_goes_on_from_every_row(scripted, counter):
    calls = tuple(Call("count", id=f"c{n}") for n in range(3))
    scripted.script("fake-chat", queue=[Behaviour(text="let me count", calls=calls)])
    chat = factories.chat()
    turn = factories.say(chat, "count thrice")
    runner.run_turns(turn.session_id)
    seqs = list(Message.objects.filter(session=turn.session_id).values_list("seq", flat=True))
    assert len(seqs) == 6

    for seq in seqs:
        made = intake.branch(
            chat_id=chat.pk,
            user_id=chat.owner_id,
            client_id=f"b{seq}",
            seq=seq,
            session_id=turn.session_id,
        )
        copy = Chat.objects.get(uid=made["chat"])
        on = factories.say(copy, "go on")
        runner.run_turns(on.session_id)
        on.refresh_from_db()
        assert (seq, on.status) == (seq, "completed")
    assert scripted.violations() == []
    assert check_invariants() == []
