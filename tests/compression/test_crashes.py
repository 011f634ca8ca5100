"""Every write of the fence, with a process that dies at each statement."""

from __future__ import annotations

import pytest

from compression_app import fence, intake
from compression_app.domain import AttemptStatus, Reason, Trigger
from compression_app.models import CompactionAttempt, Cooldown
from sessions_app import intake as sessions
from sessions_app.models import Message, ModelEndpoint, Summary
from tests.compression import states
from tests.faults import crash

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


@pytest.fixture(autouse=True)
def _small_window(db, caplog):
    caplog.set_level("CRITICAL")
    ModelEndpoint.objects.create(name="small", kind="offline", window=2_000)


def rows_of(state):
    messages = Message.objects.filter(session__chat=state.chat).order_by("seq")
    return list(messages.values_list("pk", "seq", "text"))


def test_open_is_whole_or_nothing():
    def act(state):
        intake.request_compaction(session_id=state.turn.session_id, trigger=Trigger.HARD)

    def check(state, came_through):
        assert CompactionAttempt.objects.filter(session=state.turn.session_id).count() == 1

    def recover(state):
        act(state)

    assert crash.crash_everywhere(states.long_chat, act, recover=recover, check=check) > 10


def test_a_claimed_attempt_whose_worker_died_is_lost():
    def check(state, came_through):
        status = state.fresh_attempt().status
        assert status in {"queued", "lost"}
        assert Cooldown.objects.filter(session=state.turn.session_id).count() == (status == "lost")

    crash.crash_everywhere(
        states.opened,
        lambda state: fence.claim(state.attempt.pk, endpoint_id=None, model_name="m"),
        recover=states.recover,
        check=check,
    )


def test_commit_is_whole_or_the_attempt_is_lost():
    before = {}

    def setup():
        state = states.deferred()
        before[state.chat.pk] = rows_of(state)
        return state

    def check(state, came_through):
        attempt, session = state.fresh_attempt(), state.session()
        assert rows_of(state)[: len(before[state.chat.pk])] == before[state.chat.pk]
        if attempt.status == "committed":
            assert session.summary.covers_through == attempt.cut
            assert not Cooldown.objects.filter(session=session).exists()
        else:
            assert (attempt.status, session.summary) == ("lost", None)
            cooldown = Cooldown.objects.get(session=session)
            assert (cooldown.kind, cooldown.reason) == ("flat", "turn-hold: lease_expired")

    crash.crash_everywhere(
        setup,
        lambda state: fence.commit(state.held.lease, state.written()),
        recover=states.recover,
        check=check,
    )


def test_a_failure_is_booked_once():
    def check(state, came_through):
        attempt = state.fresh_attempt()
        assert attempt.status in {"failed", "lost"}
        cooldown = Cooldown.objects.get(session=attempt.session_id)
        assert cooldown.kind == ("ladder" if attempt.status == "failed" else "flat")

    crash.crash_everywhere(
        states.running,
        lambda state: fence.fail(state.held.lease, Reason.STALLED),
        recover=states.recover,
        check=check,
    )


def test_a_cancel_lands_or_not():
    def act(state):
        intake.cancel(session_id=state.attempt.session_id, actor="me")

    def check(state, came_through):
        assert state.fresh_attempt().status in {"cancelled", "lost"}
        assert Cooldown.objects.filter(session=state.attempt.session_id).count() == 1

    crash.crash_everywhere(states.running, act, recover=states.recover, check=check)


def test_a_hold_begins_once_and_its_end_defers_once():
    def act(state):
        fence.hold(state.attempt.pk, state.turn.pk, state.turn.session_id)
        fence.release(state.attempt.pk, state.turn.session_id)

    def check(state, came_through):
        attempt = state.fresh_attempt()
        assert attempt.status == "lost"
        is_deferred = attempt.hold_released_at is not None
        reason = Cooldown.objects.get(session=attempt.session_id).reason
        assert reason.startswith("turn-hold") == is_deferred

    crash.crash_everywhere(states.running, act, recover=states.recover, check=check)


def test_undo_is_whole_or_nothing():
    def setup():
        state = states.running()
        fence.commit(state.held.lease, state.written())
        return state

    def act(state):
        sessions.undo_summary(**state.who)

    def recover(state):
        if Summary.objects.filter(session=state.attempt.session_id, reverted_at=None).exists():
            act(state)

    def check(state, came_through):
        session = state.session()
        assert session.summary is None
        assert session.live_count == session.last_seq

    crash.crash_everywhere(setup, act, recover=recover, check=check)


def test_a_preview_is_adopted_whole_or_stays():
    def setup():
        state = states.running()
        CompactionAttempt.objects.filter(pk=state.attempt.pk).update(wants_preview=True)
        fence.commit(state.held.lease, state.written())
        assert state.fresh_attempt().status == AttemptStatus.PREVIEW
        return state

    def act(state):
        fence.apply_preview(state.attempt.pk, state.attempt.session_id, state.written().draft)

    def check(state, came_through):
        assert state.fresh_attempt().status == "committed"
        assert Summary.objects.filter(session=state.attempt.session_id).count() == 1

    crash.crash_everywhere(setup, act, recover=act, check=check)


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ncrash points passed so far: {crash.total.points}")
    print(f"COMMITs without an answer so far: {crash.total.answers}")
