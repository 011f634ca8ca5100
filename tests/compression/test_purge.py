"""A chat that was deleted long ago leaves no row behind, also one that was summarised."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compression_app import intake as asking
from compression_app import sweeps as folding
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib import hints
from hermes.lib.db import DbNow
from sessions_app import intake, sweeps
from sessions_app.models import Chat, Message, Session, Summary
from tests.compression.conftest import session_over_mark
from tests.states import State

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]


def compacting() -> State:
    """A chat with an attempt that has not been claimed."""
    state = session_over_mark()
    opened = asking.request_compaction(session_id=state.turn.session_id, trigger="hard")
    assert isinstance(opened, CompactionAttempt)
    return state


def sweep_twice() -> None:
    for _ in range(2):
        sweeps.sweep(force=True)
        folding.sweep(force=True)


def test_every_row_goes_and_only_those_of_the_chat(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    kept, gone = compacting(), compacting()
    Cooldown.objects.create(
        session_id=gone.turn.session_id,
        attempt=CompactionAttempt.objects.get(session=gone.turn.session_id),
        kind="ladder",
        until=DbNow() + timedelta(hours=1),
    )
    intake.delete_chat(chat_id=gone.chat.pk, user_id=gone.chat.owner_id)
    sweep_twice()
    assert Chat.objects.count() == 2

    Chat.objects.filter(pk=gone.chat.pk).update(deleted_at=DbNow() - timedelta(days=31))
    sweep_twice()

    assert list(Chat.objects.values_list("pk", flat=True)) == [kept.chat.pk]
    assert {each.chat_id for each in Session.objects.all()} == {kept.chat.pk}
    assert {each.session.chat_id for each in CompactionAttempt.objects.all()} == {kept.chat.pk}
    assert not Cooldown.objects.filter(session__chat=gone.chat.pk).exists()
    assert CompressionState.objects.filter(session__isnull=False).count() == 1
    assert Message.objects.exists()
    assert not Summary.objects.exists()
