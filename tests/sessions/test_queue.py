"""What a person may do with messages that wait, and with the answer that runs."""

from __future__ import annotations

import pytest

from sessions_app import intake, transcript
from sessions_app.domain import Code, Refused, Wait
from sessions_app.models import Chat, Session, Turn
from tests import factories, states

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def busy():
    """A running turn, and two that wait."""
    state = states.running()
    state.first = factories.say(state.chat, "first")
    state.second = factories.say(state.chat, "second")
    return state


def waiting(state) -> list[str]:
    return [turn.text for turn in intake.queue_of(state.turn.session_id)]


def refused(code, call, **arguments):
    with pytest.raises(Refused) as caught:
        call(**arguments)
    assert caught.value.code is code
    assert caught.value.message


def test_a_waiting_message_can_be_changed(busy):
    intake.edit_queued(**busy.who, turn_id=busy.first.pk, text="first, better\x00")
    assert waiting(busy) == ["first, better\ufffd", "second"]
    refused(Code.EMPTY, intake.edit_queued, **busy.who, turn_id=busy.first.pk, text=" \n")


def test_a_waiting_message_can_be_taken_back(busy):
    intake.delete_queued(**busy.who, turn_id=busy.first.pk)
    assert waiting(busy) == ["second"]
    refused(Code.NOT_QUEUED, intake.delete_queued, **busy.who, turn_id=busy.first.pk)


def test_send_now_goes_first_and_stops_what_runs(busy):
    stopped = intake.promote(**busy.who, turn_id=busy.second.pk)
    assert stopped.pk == busy.turn.pk
    assert Turn.objects.get(pk=busy.turn.pk).stop_asked_at is not None
    assert waiting(busy) == ["second", "first"]
    intake.promote(**busy.who, turn_id=busy.first.pk)
    assert waiting(busy) == ["first", "second"]


def test_send_now_ends_a_turn_that_only_waits(busy):
    state = states.waiting()
    later = factories.say(state.chat, "now!")
    intake.promote(**state.who, turn_id=later.pk)
    assert state.again().status == "cancelled"
    assert states.violations(state) == []


def test_what_runs_is_not_in_the_queue(busy):
    for call, more in (
        (intake.edit_queued, {"text": "x"}),
        (intake.delete_queued, {}),
        (intake.promote, {}),
    ):
        refused(Code.NOT_QUEUED, call, **busy.who, turn_id=busy.turn.pk, **more)


def test_what_belongs_to_others_does_not_exist(busy):
    stranger = factories.person()
    who = {"chat_id": busy.chat.pk, "user_id": stranger.pk}
    for call, more in (
        (intake.accept_turn, {"client_turn_id": "x", "text": "x"}),
        (intake.stop_turn, {}),
        (intake.edit_queued, {"turn_id": busy.first.pk, "text": "x"}),
        (intake.delete_queued, {"turn_id": busy.first.pk}),
        (intake.promote, {"turn_id": busy.first.pk}),
        (intake.new_session, {"client_id": "x"}),
        (intake.regenerate, {}),
        (intake.continue_turn, {}),
        (intake.rewind_to, {}),
        (intake.undo_summary, {}),
        (intake.bring_back, {"rewind_id": 1}),
        (intake.edit_message, {"turn_id": busy.turn.pk, "client_turn_id": "x", "text": "x"}),
        (intake.branch, {"client_id": "x", "session_id": busy.turn.session_id, "seq": 1}),
        (intake.rename, {"title": "x"}),
        (intake.set_pinned, {"pinned": True}),
        (intake.set_archived, {"archived": True}),
        (intake.choose_endpoint, {"endpoint_id": None}),
        (intake.delete_chat, {}),
        (intake.undelete_chat, {}),
    ):
        refused(Code.NOT_FOUND, call, **who, **more)
    assert not intake.mark_read(**who, session_id=busy.turn.session_id, seq=1)


def test_a_chat_of_ones_own_does_not_reach_into_another(busy):
    other = states.running()
    theirs = other.turn
    mine = busy.who
    refused(Code.NOT_FOUND, intake.edit_queued, **mine, turn_id=theirs.pk, text="x")
    refused(Code.NOT_FOUND, intake.promote, **mine, turn_id=theirs.pk)
    refused(
        Code.NOT_FOUND,
        intake.edit_message,
        **mine,
        turn_id=theirs.pk,
        client_turn_id="x",
        text="x",
    )
    refused(Code.NOT_FOUND, intake.regenerate, **mine, turn_id=theirs.pk)
    branch = {"client_id": "x", "session_id": theirs.session_id, "seq": 1}
    refused(Code.NOT_FOUND, intake.branch, **mine, **branch)


def test_a_full_queue_says_so_and_keeps_the_rest(busy, settings):
    settings.HERMES_QUEUE_LIMIT = 2
    refused(Code.QUEUE_FULL, intake.accept_turn, **busy.who, client_turn_id="z", text="third")
    assert waiting(busy) == ["first", "second"]


def test_the_same_id_is_the_same_turn_whatever_session_is_open(busy):
    intake.new_session(**busy.who, client_id="n")
    again = intake.accept_turn(**busy.who, client_turn_id=busy.first.client_turn_id, text="first")
    assert (again.turn.pk, again.is_new) == (busy.first.pk, False)
    refused(
        Code.ID_REUSED,
        intake.accept_turn,
        **busy.who,
        client_turn_id=busy.first.client_turn_id,
        text="other",
    )
    refused(Code.ID_REUSED, intake.accept_turn, **busy.who, client_turn_id="n", text="x")
    refused(Code.ID_REUSED, intake.new_session, **busy.who, client_id=busy.first.client_turn_id)


def test_an_edited_message_is_still_known_by_its_id(busy):
    intake.edit_queued(**busy.who, turn_id=busy.first.pk, text="changed")
    again = intake.accept_turn(**busy.who, client_turn_id=busy.first.client_turn_id, text="first")
    assert again.turn.pk == busy.first.pk


class TestAgain:
    def test_a_second_regenerate_of_one_id_is_the_same(self):
        state = states.fresh()
        one = intake.regenerate(**state.who, client_turn_id="r")
        assert intake.regenerate(**state.who, client_turn_id="r").pk == one.pk
        refused(Code.ID_REUSED, intake.continue_turn, **state.who, client_turn_id="r")

    def test_there_has_to_be_something_to_redo(self):
        chat = factories.chat()
        who = {"chat_id": chat.pk, "user_id": chat.owner_id}
        for call in (intake.regenerate, intake.rewind_to, intake.continue_turn):
            refused(Code.NOTHING_TO_REDO, call, **who)
        refused(Code.NOTHING_TO_REDO, intake.undo_summary, **who)

    def test_continue_waits_for_what_runs(self):
        state = states.running()
        refused(Code.BUSY, intake.continue_turn, **state.who)

    def test_undo_gives_the_words_back(self):
        state = states.fresh()
        made, text = intake.rewind_to(**state.who)
        assert text == "hello"
        intake.bring_back(**state.who, rewind_id=made)
        refused(Code.NOT_FOUND, intake.bring_back, **state.who, rewind_id=made)
        assert states.violations(state) == []

    def test_versions_interleave_and_all_come_back(self):
        state = states.fresh()

        def answer(text):
            claimed = transcript.claim(Session.objects.get(chat=state.chat).pk)
            transcript.start(claimed)
            transcript.finish(claimed, states.answer(text))

        def live():
            session = Session.objects.get(chat=state.chat)
            rows = session.messages.all().live().order_by("seq")
            return [text for (text,) in rows.values_list("text")]

        first = Turn.objects.get(chat=state.chat)
        edit = {"turn_id": first.pk, "client_turn_id": "e", "text": "hello 2"}
        intake.edit_message(**state.who, **edit)
        answer("hi 2")
        assert live() == ["hello 2", "hi 2"]
        session = Session.objects.get(chat=state.chat)
        one = session.rewinds.filter(undone_at=None).get()
        intake.bring_back(**state.who, rewind_id=one.pk)
        assert live() == ["hello", "hi"]
        factories.say(state.chat, "more")
        answer("ok")
        assert live() == ["hello", "hi", "more", "ok"]
        two = session.rewinds.filter(undone_at=None).get()
        intake.bring_back(**state.who, rewind_id=two.pk)
        assert live() == ["hello 2", "hi 2"]
        back = session.rewinds.filter(undone_at=None).order_by("pk").last()
        intake.bring_back(**state.who, rewind_id=back.pk)
        assert live() == ["hello", "hi", "more", "ok"]
        assert states.violations(state) == []


class TestChats:
    def test_an_unused_chat_is_used_again_and_is_in_no_list(self):
        owner = factories.person()
        one = intake.open_chat(user_id=owner.pk)
        assert intake.open_chat(user_id=owner.pk).pk == one.pk
        assert not Chat.objects.listed(owner.pk).exists()
        factories.say(one, "hello")
        assert intake.open_chat(user_id=owner.pk).pk != one.pk
        assert list(Chat.objects.listed(owner.pk)) == [one]

    def test_a_name_that_was_given_stays(self):
        chat = factories.chat()
        who = {"chat_id": chat.pk, "user_id": chat.owner_id}
        intake.rename(**who, title="  Mine \u202e ")
        factories.say(chat, "first words")
        chat.refresh_from_db()
        assert (chat.title, chat.is_named) == ("Mine", True)
        refused(Code.EMPTY, intake.rename, **who, title=" \n\u200b")

    @pytest.mark.parametrize(
        "text",
        [
            "👨\u200d👩\u200d👧\u200d👦" * 40,
            "漢字" * 150,
            "a" + "\u0301" * 400,
            "w" * 2000,
            " \n x",
        ],
    )
    def test_a_title_fits_whatever_was_said(self, text):
        import regex

        chat = factories.chat()
        factories.say(chat, text)
        chat.refresh_from_db()
        assert len(chat.title) <= 80
        assert regex.fullmatch(r"\X*", chat.title)

    def test_pin_archive_and_model(self):
        state = states.fresh()
        assert intake.set_pinned(**state.who, pinned=True)
        assert intake.set_archived(**state.who, archived=True)
        refused(Code.NOT_FOUND, intake.choose_endpoint, **state.who, endpoint_id=12345)
        state.chat.refresh_from_db()
        assert state.chat.pinned_at is not None
        assert state.chat.archived_at is not None

    def test_delete_and_back_goes_on_in_the_same_session(self):
        state = states.running()
        intake.delete_chat(**state.who)
        refused(Code.NOT_FOUND, intake.accept_turn, **state.who, client_turn_id="x", text="x")
        intake.undelete_chat(**state.who)
        turn = factories.say(state.chat, "still here?")
        assert turn.session_id == state.turn.session_id
        assert states.violations(state) == []

    def test_reading_is_remembered_and_never_goes_back(self):
        state = states.fresh()
        session = Session.objects.get(chat=state.chat)
        read = {**state.who, "session_id": session.pk}
        assert intake.mark_read(**read, seq=2)
        assert not intake.mark_read(**read, seq=1)
        assert not intake.mark_read(**read, seq=99)

    def test_a_session_that_the_system_ended_goes_on(self):
        state = states.fresh()
        session = Session.objects.get(chat=state.chat)
        Session.objects.filter(pk=session.pk).update(touched_at="2020-01-01T00:00Z")
        idle = {"session_id": session.pk, "chat_id": state.chat.pk, "hours": 1}
        assert intake.end_idle(**idle)
        assert not intake.end_idle(**idle)
        turn = factories.say(state.chat, "back again")
        assert turn.session_id == session.pk
        session.refresh_from_db()
        assert session.ended_at is None

    def test_a_session_with_open_work_is_not_idle(self):
        state = states.waiting()
        Session.objects.filter(chat=state.chat).update(touched_at="2020-01-01T00:00Z")
        session = Session.objects.get(chat=state.chat)
        assert not intake.end_idle(session_id=session.pk, chat_id=state.chat.pk, hours=1)

    def test_a_branch_is_named_the_same_twice_and_stands_alone(self):
        state = states.fresh()
        session = Session.objects.get(chat=state.chat)
        asked = {"session_id": session.pk, "seq": 2}
        one = intake.branch(**state.who, client_id="b", **asked)
        assert intake.branch(**state.who, client_id="b", **asked) == one
        refused(
            Code.ID_REUSED, intake.branch, **state.who, client_id="b", session_id=session.pk, seq=1
        )
        refused(
            Code.NOT_FOUND, intake.branch, **state.who, client_id="c", session_id=session.pk, seq=9
        )
        copy = Chat.objects.get(uid=one["chat"])
        assert states.violations(states.State(copy)) == []
        assert Wait("k").until is None
