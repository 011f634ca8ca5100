"""What is underway without a worker: handed back, or asked to answer again and not begun."""

from __future__ import annotations

import pytest

from sessions_app import intake, runner, transcript
from sessions_app.domain import Code, Refused, TurnStatus
from sessions_app.invariants import check_invariants
from sessions_app.models import Message, Turn
from tests import factories
from tests.scripted.behaviour import Behaviour, expected_answer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("endpoint")]


def who(turn: Turn) -> dict[str, int]:
    return {"chat_id": turn.chat_id, "user_id": turn.chat.owner_id}


def rows(turn: Turn) -> list[tuple[str, str]]:
    assert check_invariants() == []
    live = Message.objects.filter(session=turn.session_id).live().order_by("seq")
    return list(live.values_list("role", "text"))


def answered(text: str, chat=None) -> Turn:
    turn = factories.say(chat or factories.chat(), text)
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    return turn


def lose(turn: Turn, token: int) -> None:
    """The worker of a turn is gone."""
    transcript.end_unheld(
        turn.pk,
        TurnStatus.INTERRUPTED,
        session_id=turn.session_id,
        reason="worker_lost",
        token=token,
    )
    turn.refresh_from_db()


def handed_back(text: str, chat=None) -> Turn:
    """A turn whose worker went away after it had begun and before its first word."""
    turn = factories.say(chat or factories.chat(), text)
    claimed = transcript.claim(turn.session_id)
    assert claimed is not None
    assert transcript.start(claimed)
    lose(turn, claimed.lease.token)
    assert (turn.status, turn.put_back) == ("queued", 1)
    return turn


class TestTwoRequestsToAnswerAgain:
    def test_only_the_second_is_answered(self, scripted):
        turn = answered("hello")
        for name in ("a", "b"):
            intake.regenerate(**who(turn), turn_id=turn.pk, client_turn_id=name)
        runner.run_turns(turn.session_id)
        assert rows(turn) == [("user", "hello"), ("assistant", expected_answer("hello"))]
        assert scripted.violations() == []

    def test_a_second_continue_is_refused(self, scripted):
        scripted.script("fake-chat", queue=[Behaviour(text="half", finish_reason="length")])
        turn = answered("hello")
        intake.continue_turn(**who(turn), client_turn_id="a")
        with pytest.raises(Refused) as refused:
            intake.continue_turn(**who(turn), client_turn_id="b")
        assert refused.value.code == Code.BUSY

    @pytest.mark.parametrize("change", ["undo", "edit"])
    def test_what_changes_the_context_takes_the_request_with_it(self, scripted, change):
        first = answered("first")
        second = answered("second", first.chat)
        intake.regenerate(**who(second), turn_id=second.pk, client_turn_id="a")
        if change == "undo":
            intake.rewind_to(**who(second))
            expected = ["first"]
        else:
            intake.edit_message(
                **who(second), turn_id=second.pk, client_turn_id="b", text="other words"
            )
            expected = ["first", "other words"]
        runner.run_turns(second.session_id)
        told = [pair for text in expected for pair in _exchange(text)]
        assert rows(second) == told


def _exchange(text: str) -> list[tuple[str, str]]:
    return [("user", text), ("assistant", expected_answer(text))]


class TestATurnThatWasHandedBack:
    def test_editing_it_answers_only_the_new_words(self):
        turn = handed_back("old words")
        intake.edit_message(**who(turn), turn_id=turn.pk, client_turn_id="b", text="new words")
        runner.run_turns(turn.session_id)
        assert rows(turn) == _exchange("new words")

    def test_undoing_it_leaves_nothing_to_answer(self, scripted):
        turn = handed_back("old words")
        intake.rewind_to(**who(turn))
        runner.run_turns(turn.session_id)
        assert rows(turn) == []
        assert scripted.requests("fake-chat") == []

    def test_it_can_be_stopped(self, scripted):
        turn = handed_back("hello")
        stopped = intake.stop_turn(**who(turn))
        assert stopped is not None
        turn.refresh_from_db()
        assert (turn.status, turn.error_code) == ("cancelled", "stopped")
        runner.run_turns(turn.session_id)
        assert scripted.requests("fake-chat") == []


class TestAStopBeforeTheWorkerIsLost:
    def test_the_sweep_does_not_begin_it_again(self):
        turn = factories.say(factories.chat(), "hello")
        claimed = transcript.claim(turn.session_id)
        assert claimed is not None
        assert transcript.start(claimed)
        intake.stop_turn(**who(turn))
        lose(turn, claimed.lease.token)
        assert (turn.status, turn.error_code) == ("cancelled", "stopped")

    def test_a_worker_that_leaves_does_not_hand_it_back(self):
        turn = factories.say(factories.chat(), "hello")
        claimed = transcript.claim(turn.session_id)
        assert claimed is not None
        assert transcript.start(claimed)
        intake.stop_turn(**who(turn))
        transcript.end(claimed, TurnStatus.INTERRUPTED, transcript.Step(), code="shutdown")
        turn.refresh_from_db()
        assert (turn.status, turn.error_code) == ("cancelled", "stopped")
