"""Every write path of a turn, with a worker or a web process that dies at each statement."""

from __future__ import annotations

import pytest

from sessions_app import domain, endpoints, intake, transcript
from sessions_app.domain import Done, TurnStatus, Wait
from sessions_app.models import Chat, Message, Session, Turn
from tests import states
from tests.faults import crash
from tests.states import State

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


@pytest.fixture(autouse=True)
def _quick(monkeypatch, caplog):
    caplog.set_level("WARNING")
    monkeypatch.setattr(endpoints, "model_for", lambda *_: states.SILENT)


def test_submit_is_stored_or_not_and_a_retry_makes_it_one():
    def act(state: State):
        intake.accept_turn(**state.who, client_turn_id="once", text="are you there?")

    def check(state: State, came_through: bool):
        mine = Turn.objects.filter(chat=state.chat, client_turn_id="once")
        assert mine.count() == 1
        assert mine.get().status == "completed"
        assert [text for role, text in state.rows() if role == "user"] == [
            "hello",
            "are you there?",
        ]

    def recover(state: State):
        act(state)  # the client sends it again: it has no acknowledgement
        states.run_all(state)

    points = crash.crash_everywhere(states.fresh, act, recover=recover, check=check)
    assert points > 10


def test_a_turn_claimed_by_a_dead_worker_runs_again():
    def check(state: State, came_through: bool):
        assert state.again().status == "completed"
        assert [role for role, _ in state.rows()] == ["user", "assistant"] * 2

    crash.crash_everywhere(
        states.queued,
        lambda state: transcript.claim(state.turn.session_id),
        recover=states.run_all,
        check=check,
    )


def test_a_turn_started_by_a_dead_worker_runs_again_once():
    def check(state: State, came_through: bool):
        assert state.again().status == "completed"
        assert [role for role, _ in state.rows()] == ["user", "assistant"] * 2

    crash.crash_everywhere(
        states.claimed,
        lambda state: transcript.start(state.claimed),
        recover=states.run_all,
        check=check,
    )


def test_a_second_loss_interrupts():
    state = states.started()
    states.end_leases(state)
    assert (state.again().status, state.again().put_back) == ("queued", 1)
    transcript.claim(state.turn.session_id)
    states.end_leases(state)

    assert state.again().status == "interrupted"
    assert states.violations(state) == []


def test_finish_is_whole_or_the_turn_is_interrupted_with_its_text():
    def check(state: State, came_through: bool):
        turn = state.again()
        answers = [text for role, text in state.rows() if role == "assistant"][1:]
        if turn.status == "completed":
            assert answers == ["so far so good, and done"]
        else:
            assert (turn.status, answers) == ("interrupted", ["so far so good"])
            assert Message.objects.get(turn=turn, role="assistant").is_partial

    crash.crash_everywhere(
        states.running,
        lambda state: transcript.finish(state.claimed, states.answer("so far so good, and done")),
        recover=states.end_leases,
        check=check,
    )


def test_a_step_that_was_committed_is_answered_by_interrupted_results():
    def check(state: State, came_through: bool):
        turn = state.again()
        has_step = Message.objects.filter(turn=turn, parts__has_key="calls").exists()
        results = Message.objects.filter(turn=turn, role="tool").count()
        assert results == (1 if has_step else 0)
        assert turn.status == ("interrupted" if has_step else "queued")

    crash.crash_everywhere(
        states.started,
        lambda state: transcript.append_step(
            state.claimed, states.answer("let me look", calls=(states.CALL,))
        ),
        recover=states.end_leases,
        check=check,
    )


def test_a_step_that_was_run_twice_is_counted_once():
    """What a worker keeps in mind follows the row: a COMMIT that did not arrive changes nothing."""
    state = states.started()
    step = states.answer("let me look", calls=(states.CALL,))
    with crash.losing(arrives=False):
        assert transcript.append_step(state.claimed, step)
    state.claimed.take(step)

    row, kept = state.again(), state.claimed.turn
    assert (kept.length, kept.model_calls, kept.open_calls) == (11, 1, 1)
    assert (row.length, row.model_calls, row.open_calls) == (11, 1, 1)


def test_a_result_is_stored_once():
    def check(state: State, came_through: bool):
        assert Message.objects.filter(turn=state.turn, role="tool").count() == 1
        assert state.again().status == "interrupted"

    crash.crash_everywhere(
        states.calling,
        lambda state: transcript.append_result(state.claimed, states.CALL, Done("noon")),
        recover=states.end_leases,
        check=check,
    )


def test_a_wait_holds_or_the_turn_is_interrupted():
    def check(state: State, came_through: bool):
        assert state.again().status in {"waiting", "interrupted"}

    crash.crash_everywhere(
        states.calling,
        lambda state: transcript.wait(state.claimed, Wait("key")),
        recover=states.end_leases,
        check=check,
    )


def test_a_resume_lands_or_can_be_repeated():
    def recover(state: State):
        transcript.resume(state.turn.pk, "key", session_id=state.turn.session_id)
        states.run_all(state)

    def check(state: State, came_through: bool):
        assert state.again().status == "completed"

    crash.crash_everywhere(
        states.waiting,
        lambda state: transcript.resume(state.turn.pk, "key", session_id=state.turn.session_id),
        recover=recover,
        check=check,
    )


def test_stop_is_asked_or_not_and_ends_the_turn_with_its_text():
    def act(state: State):
        turn = intake.stop_turn(**state.who)
        assert turn is not None
        transcript.end_unheld(
            turn.pk,
            TurnStatus.CANCELLED,
            session_id=turn.session_id,
            reason="stopped",
            token=turn.fence_token,
        )

    def check(state: State, came_through: bool):
        turn = state.again()
        assert turn.status == ("cancelled" if came_through else turn.status)
        assert turn.status in {"cancelled", "interrupted"}
        assert state.rows()[-1] == ("assistant", "so far so good")

    crash.crash_everywhere(states.running, act, recover=states.end_leases, check=check)


def test_new_is_whole_or_nothing():
    def setup() -> State:
        state = states.running()
        intake.accept_turn(**state.who, client_turn_id="later", text="and this?")
        return state

    def act(state: State):
        intake.new_session(**state.who, client_id="fresh start")

    def recover(state: State):
        act(state)

    def check(state: State, came_through: bool):
        chat = Chat.objects.get(pk=state.chat.pk)
        sessions = list(Session.objects.filter(chat=chat).order_by("number"))
        assert [session.end_reason for session in sessions] == ["session_reset", None]
        assert chat.current_id == sessions[1].pk
        assert chat.draft == "and this?"
        assert sessions[1].last_seq == 0
        assert state.again().status == "cancelled"
        assert state.rows()[-1] == ("assistant", "so far so good")

    crash.crash_everywhere(setup, act, recover=recover, check=check)


def test_regenerate_rewinds_and_queues_together():
    def act(state: State):
        intake.regenerate(**state.who, client_turn_id="again")

    def recover(state: State):
        act(state)
        states.run_all(state)

    def check(state: State, came_through: bool):
        live = Message.objects.filter(session__chat=state.chat).live().order_by("seq")
        assert [row.role for row in live] == ["user", "assistant"]
        assert Turn.objects.filter(chat=state.chat, source="regenerate").count() == 1

    crash.crash_everywhere(states.fresh, act, recover=recover, check=check)


def test_delete_ends_and_hides_together():
    def act(state: State):
        intake.delete_chat(**state.who)

    def recover(state: State):
        if Chat.objects.filter(pk=state.chat.pk, deleted_at=None).exists():
            act(state)

    def check(state: State, came_through: bool):
        chat = Chat.objects.select_related("current").get(pk=state.chat.pk)
        assert chat.deleted_at is not None
        assert chat.current.end_reason == domain.EndReason.DELETED
        assert state.again().status == "cancelled"

    crash.crash_everywhere(states.running, act, recover=recover, check=check)


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ncrash points passed: {crash.total.points}")
    print(f"COMMITs without an answer: {crash.total.answers}")
