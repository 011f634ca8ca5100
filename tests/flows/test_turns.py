"""A turn from what was said to the answer, through real rows."""

from __future__ import annotations

import pytest

from sessions_app import intake, runner
from sessions_app.models import Message, Session, Turn
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_is_answered():
    chat = factories.chat()
    turn = factories.say(chat, "!say 30 words")
    runner.run_turns(turn.session_id)

    turn.refresh_from_db()
    assert turn.status == "completed"
    rows = list(Message.objects.order_by("seq").values_list("seq", "role"))
    assert rows == [(1, "user"), (2, "assistant")]
    assert Message.objects.get(seq=2).text.startswith("one more")


def test_a_tool_is_called():
    chat = factories.chat()
    turn = factories.say(chat, "!tool current_time {}")
    runner.run_turns(turn.session_id)

    turn.refresh_from_db()
    assert turn.status == "completed"
    roles = list(Message.objects.order_by("seq").values_list("role", flat=True))
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_new_ends_the_session_and_gives_waiting_messages_back():
    chat = factories.chat()
    factories.say(chat, "first")
    second = factories.say(chat, "second")
    reply = intake.new_session(chat_id=chat.pk, user_id=chat.owner_id, client_id="n1")
    again = intake.new_session(chat_id=chat.pk, user_id=chat.owner_id, client_id="n1")

    assert reply == again
    assert reply["drafts"] == ["first", "second"]
    second.refresh_from_db()
    assert second.status == "cancelled"
    assert Session.objects.filter(chat=chat).count() == 2
    assert not Turn.objects.filter(status="queued").exists()


def test_a_second_new_session_keeps_what_came_back_from_the_first():
    chat = factories.chat()
    who = {"chat_id": chat.pk, "user_id": chat.owner_id}
    factories.say(chat, "first")
    intake.new_session(**who, client_id="n1")
    intake.new_session(**who, client_id="n2")
    chat.refresh_from_db()

    assert chat.draft == "first"


def test_a_chat_that_comes_back_has_its_waiting_messages_as_drafts():
    chat = factories.chat()
    who = {"chat_id": chat.pk, "user_id": chat.owner_id}
    factories.say(chat, "first")
    factories.say(chat, "second")
    intake.delete_chat(**who)
    back = intake.undelete_chat(**who)

    assert back.draft == "first\n\nsecond"
    assert not Turn.objects.filter(status="queued").exists()


def test_versions_of_an_answer_come_back():
    chat = factories.chat()
    turn = factories.say(chat, "hello")
    runner.run_turns(turn.session_id)
    who = {"chat_id": chat.pk, "user_id": chat.owner_id}
    intake.regenerate(**who)
    runner.run_turns(turn.session_id)

    def live():
        return list(Message.objects.live().order_by("seq").values_list("seq", flat=True))

    assert live() == [1, 3]
    session = Session.objects.get()
    first = session.rewinds.get()
    assert (session.live_count, first.after_seq) == (2, 1)
    intake.bring_back(**who, rewind_id=first.pk)
    assert live() == [1, 2]
    other = session.rewinds.get(undone_at=None)
    intake.bring_back(**who, rewind_id=other.pk)
    assert live() == [1, 3]
    intake.rewind_to(**who)
    assert live() == []
    session.refresh_from_db()
    assert (session.live_count, session.live_tokens) == (0, 0)


def test_a_branch_is_a_copy():
    chat = factories.chat()
    turn = factories.say(chat, "hello")
    runner.run_turns(turn.session_id)
    who = {"chat_id": chat.pk, "user_id": chat.owner_id}
    reply = intake.branch(**who, client_id="b1", session_id=turn.session_id, seq=2)
    assert reply == intake.branch(**who, client_id="b1", session_id=turn.session_id, seq=2)
    copies = Message.objects.filter(session__chat__uid=reply["chat"])
    assert list(copies.values_list("seq", "text").order_by("seq")) == list(
        Message.objects.filter(session=turn.session_id).values_list("seq", "text").order_by("seq")
    )
