"""One guard each: what a worker, a sweep or a summary may not do, in the smallest form.

``tests/mutants.py`` takes the guards out one by one and expects these tests to see it.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from hermes.lib import hints
from hermes.lib.chat import Finished, FinishReason, TextDelta
from hermes.lib.db import db_now
from hermes.lib.leases import Lease
from sessions_app import endpoints, intake, runner, streaming, sweeps, transcript
from sessions_app.domain import Done, EndReason, TurnStatus, Wait
from sessions_app.models import Session, Turn
from tests import factories, states
from tests.benchmarks.lengths import Folding
from tests.benchmarks.seeds import long_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)


def taken_over() -> tuple[states.State, transcript.Claimed]:
    """A turn that was lost and claimed again; what its first worker still holds."""
    state = states.started()
    old = state.claimed
    states.end_leases(state)
    state.claimed = transcript.claim(state.turn.session_id)
    assert old is not None
    assert state.claimed.lease.token == old.lease.token + 1
    return state, old


def test_a_worker_that_was_taken_over_writes_nothing():
    state, old = taken_over()
    before = state.rows()
    step = states.answer("from the dead", calls=(states.CALL,))
    said = [
        transcript.save_chunk(old.lease, 7, 0, "from the dead"),
        transcript.append_step(old, step),
        transcript.append_result(old, states.CALL, Done("dead")),
        transcript.wait(old, Wait("key")),
        transcript.end(old, TurnStatus.FAILED, step, code="internal"),
        transcript.finish(old, states.answer("from the dead")),
    ]

    assert said == [False] * 6
    assert state.rows() == before
    assert state.again().status == "running"
    assert transcript.finish(state.claimed, states.answer("alive"))
    assert states.violations(state) == []


def test_a_sweep_that_saw_an_older_run_ends_nothing():
    state, old = taken_over()
    ended = transcript.end_unheld(
        state.turn.pk,
        TurnStatus.INTERRUPTED,
        session_id=state.turn.session_id,
        reason="worker_lost",
        token=old.lease.token,
    )
    assert not ended
    assert state.again().status == "running"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_whose_clock_is_wrong_holds_its_lease_as_long_as_any(hours, monkeypatch):
    true = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: true() + timedelta(hours=hours))
    state = states.claimed()
    for _ in range(2):
        left = state.again().lease_expires_at - db_now()
        assert timedelta(0) < left <= Turn.LEASE.ttl
        assert Turn.objects.renew(Lease(state.turn.pk, 1), ttl=Turn.LEASE.ttl)
    assert list(sweeps.end_abandoned()) == []
    assert state.again().status == "running"


def test_a_turn_whose_session_has_ended_does_not_start():
    state = states.claimed()
    Session.objects.filter(pk=state.turn.session_id).update(
        ended_at=db_now(), end_reason=EndReason.IDLE_TIMEOUT
    )
    assert not transcript.start(state.claimed)
    assert state.again().status == "cancelled"
    assert "what now?" not in dict(state.rows()).values()


def test_text_above_a_gap_is_not_kept():
    state = states.running()
    assert transcript.save_chunk(state.claimed.lease, 3, 40, "but not this")
    states.end_leases(state)
    assert state.rows()[-1] == ("assistant", "so far so good")
    assert states.violations(state) == []


def test_a_piece_that_was_saved_twice_is_kept_once():
    """Its first save landed without an answer, and it was saved again with what came after."""
    state = states.running()
    assert transcript.save_chunk(state.claimed.lease, 3, 7, "so good, and more")
    states.end_leases(state)
    assert state.rows()[-1] == ("assistant", "so far so good, and more")
    assert states.violations(state) == []


def test_open_calls_are_answered_when_the_turn_ends():
    state = states.calling()
    intake.new_session(**state.who, client_id="n")
    assert [role for role, _ in state.rows()][-2:] == ["assistant", "tool"]
    assert states.violations(state) == []


def test_every_change_that_people_see_raises_the_version():
    state = states.fresh()
    session = Session.objects.get(pk=state.chat.sessions.get().pk)

    def version() -> int:
        session.refresh_from_db()
        return session.version

    seen = [version()]
    state.turn = factories.say(state.chat, "what now?")
    seen.append(version())
    claimed = transcript.claim(session.pk)
    transcript.start(claimed)
    seen.append(version())
    transcript.finish(claimed, states.answer("this"))
    seen.append(version())
    intake.rewind_to(**state.who)
    seen.append(version())
    assert seen == list(range(seen[0], seen[0] + 5))


class Model:
    """A model that looks, while it speaks, at what this thread holds."""

    name, window = "looking", 8_000

    def __init__(self) -> None:
        self.held: list[bool] = []

    def open(self, request):
        return self

    def __iter__(self):
        yield TextDelta("I see ")
        self.held.append(connection.connection is not None)
        yield TextDelta("nothing.")
        yield Finished(FinishReason.STOP, (), None)

    def shutdown(self):
        pass

    def close(self):
        pass


def test_no_connection_is_held_while_a_model_speaks(monkeypatch):
    model = Model()
    monkeypatch.setattr(endpoints, "model_for", lambda *_: model)
    state = states.queued()
    runner.run_turns(state.turn.session_id)
    assert state.rows()[-1] == ("assistant", "I see nothing.")
    assert model.held == [False]


def test_the_first_text_is_saved_before_it_is_shown(monkeypatch):
    state = states.started()
    happened = []
    save = transcript.save_chunk

    def saved(*args):
        happened.append("saved")
        return save(*args)

    monkeypatch.setattr(transcript, "save_chunk", saved)
    monkeypatch.setattr(streaming, "push", lambda *_: happened.append("shown"))
    lease, session = state.claimed.lease, state.turn.session_id
    lost: list[bool] = []
    with streaming.Flusher(
        lease, session_id=session, offset=0, on_lost=lambda: lost.append(True)
    ) as flusher:
        flusher.add("hello")
        while "shown" not in happened:
            assert flusher._thread.is_alive()
    assert happened == ["saved", "shown"]
    assert lost == []


def test_what_is_streamed_after_a_save_without_an_answer_is_saved(monkeypatch):
    state = states.started()
    save, saves = transcript.save_chunk, []

    def saved(*args):
        landed = save(*args)
        saves.append(args)
        if len(saves) == 1:
            raise OperationalError("the connection is gone")
        return landed

    monkeypatch.setattr(transcript, "save_chunk", saved)
    monkeypatch.setattr(streaming, "SAVE_EVERY", 0.0)
    lease, session = state.claimed.lease, state.turn.session_id
    with streaming.Flusher(lease, session_id=session, offset=0, on_lost=lambda: None) as flusher:
        for count, piece in enumerate(("one ", "two ", "three"), 1):
            flusher.add(piece)
            while len(saves) < count:
                assert flusher._thread.is_alive()
    states.end_leases(state)

    assert state.rows()[-1] == ("assistant", "one two three")


def test_a_commit_touches_no_message():
    def rows():
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, xmin::text, seq, text FROM sessions_app_message ORDER BY id")
            return cursor.fetchall()

    folding = Folding(long_session(100))
    claimed, written = folding.ready()
    before = rows()
    from compression_app import fence

    assert type(fence.commit(claimed.lease, written)).__name__ == "Commit"
    assert len(before) == 100
    assert rows() == before
    assert Session.objects.get(pk=folding.session_id).summary is not None
