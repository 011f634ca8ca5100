"""The races of compaction by name (R9, R12–R19): what must come out, whoever comes first."""

from __future__ import annotations

import pytest

from compression_app import fence, intake, runner
from compression_app.domain import Commit, Fenced, Reason
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib import hints
from hermes.lib.leases import renewer
from sessions_app import intake as sessions
from sessions_app import runner as turns
from sessions_app import transcript
from sessions_app.domain import Done
from sessions_app.models import Message, ModelEndpoint, Session, Summary
from sessions_app.transcript import Step
from tests.compression import states
from tests.compression.conftest import newest_attempt, session_over_mark, until
from tests.races.explorer import race, started
from tests.scripted.behaviour import Behaviour

pytestmark = [pytest.mark.django_db(transaction=True)]


class TestOnRows:
    @pytest.fixture(autouse=True)
    def _rows_only(self, db, monkeypatch):
        ModelEndpoint.objects.create(name="small", kind="offline", window=2_000)
        monkeypatch.setattr(hints, "enqueue", lambda *_: False)

    def test_r9_of_two_workers_one_commits(self):
        state = states.opened()

        def work():
            claimed = fence.claim(state.attempt.pk, endpoint_id=None, model_name="m")
            if claimed is not None:
                return fence.commit(claimed.lease, state.written())
            return None

        verdicts = race(4, work)
        assert sum(isinstance(verdict, Commit) for verdict in verdicts) == 1
        assert Summary.objects.filter(session=state.attempt.session_id).count() == 1

    def test_r12_a_second_delivery_has_no_effect(self):
        state = states.opened()
        assert isinstance(runner.run_attempt(state.attempt.pk), Commit)
        before = (Summary.objects.count(), state.session().version)
        assert runner.run_attempt(state.attempt.pk) is None
        assert runner.run_attempt(987_654) is None
        assert (Summary.objects.count(), state.session().version) == before

    def test_r13_a_late_clean_up_shortens_nothing(self):
        state = states.running()
        fence.end(state.attempt.pk, state.attempt.session_id, "lost", Reason.LEASE_EXPIRED)
        armed = Cooldown.objects.get(session=state.attempt.session_id)
        assert not fence.fail(state.held.lease, Reason.CANCELLED)
        assert isinstance(fence.commit(state.held.lease, state.written()), Fenced)
        assert Cooldown.objects.get(session=state.attempt.session_id) == armed
        armed.refresh_from_db()
        assert armed.cleared_at is None

    def test_r15_a_deleted_chat_ends_it_quietly(self):
        state = states.deferred()
        sessions.delete_chat(**state.who)
        intake.supersede(session_id=state.attempt.session_id)
        attempt = state.fresh_attempt()
        assert (attempt.status, attempt.reason) == ("superseded", "session_ended")
        assert not Cooldown.objects.filter(session=attempt.session_id).exists()
        assert isinstance(fence.commit(state.held.lease, state.written()), Fenced)

    def test_r16_a_tool_result_during_the_attempt_stands_above_it(self):
        state = states.held()
        transcript.start(state.claimed)
        call = states.states.CALL
        transcript.append_step(state.claimed, Step(text="look", calls=(call,)))
        transcript.append_result(state.claimed, call, Done("twelve rows"))
        assert isinstance(fence.commit(state.held.lease, state.written()), Commit)
        through = state.session().summary.covers_through
        rows = Message.objects.filter(session=state.attempt.session_id, seq__gt=through)
        assert [row.text for row in rows.order_by("seq")][-3:] == [
            "what now?",
            "look",
            "twelve rows",
        ]
        assert states.states.violations(state) == []

    def test_r17_an_idle_end_by_the_system_still_lets_it_commit(self):
        state = states.running()
        Session.objects.filter(pk=state.attempt.session_id).update(touched_at="2020-01-01T00:00Z")
        idle = {"session_id": state.attempt.session_id, "chat_id": state.chat.pk, "hours": 1}
        assert sessions.end_idle(**idle)
        assert isinstance(fence.commit(state.held.lease, state.written()), Commit)

    def test_r19_a_released_turn_that_ends_after_the_adoption_leaves_no_reading(self):
        state = states.deferred()
        transcript.start(state.claimed)
        old = Step(
            text="done",
            usage=states.Usage(99_999, 5),
            built_on_id=None,
            last_seq=8,
            model_name="m",
        )
        assert isinstance(fence.commit(state.held.lease, state.written()), Commit)
        assert transcript.finish(state.claimed, old)
        session = state.session()
        assert session.reading_tokens is None
        assert transcript.context_tokens(session) < 2_000
        intake.after_turn(session_id=session.pk, window=2_000, size=99_999, built_on_id=None)
        assert CompactionAttempt.objects.filter(session=session).count() == 1
        assert CompressionState.objects.get(session=session).ineffective == 0


@pytest.mark.usefixtures("models")
class TestOnAStream:
    @pytest.fixture
    def deferred(self, scripted, worker):
        scripted.script(
            "fake-sum", default=Behaviour(text=states.BODY, hold="go", hold_at=2, reasoning="hm")
        )
        return session_over_mark()

    def test_r14_stop_of_a_turn_leaves_the_attempt_alone(self, scripted, deferred, worker):
        scripted.script("fake-chat", default=Behaviour(stall_after=2))
        turn = states.factories.say(deferred.chat, "hello")
        thread = started(lambda: turns.run_turns(turn.session_id))
        until(turn.chunks.exists)
        assert sessions.stop_turn(**deferred.who) is not None
        thread.join(5)
        turn.refresh_from_db()
        assert turn.status == "cancelled"
        assert newest_attempt().status == "running"
        scripted.release("go")
        worker[0].join(10)
        assert newest_attempt().status == "committed"

    def test_r18_a_worker_that_leaves_hands_it_back(self, scripted, deferred, worker):
        made = intake.request_compaction(session_id=deferred.turn.session_id, trigger="manual")
        until(lambda: newest_attempt().status == "running" and newest_attempt().progress)
        renewer.leave()
        worker[0].join(5)
        renewer.stay()
        made.refresh_from_db()
        assert (made.status, made.reason) == ("lost", "shutdown")
        assert Cooldown.objects.get().kind == "flat"
        assert CompressionState.objects.get(session=deferred.turn.session_id).streak == 0
        scripted.wait(lambda report: report["counts"]["fake-sum"]["open"] == 0)
        scripted.release("go")
