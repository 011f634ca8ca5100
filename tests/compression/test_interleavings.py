"""Pairs that meet at the fence, statement by statement."""

from __future__ import annotations

import os

import pytest

from compression_app import fence, intake
from compression_app.domain import Commit, Fenced
from compression_app.models import CompactionAttempt, Cooldown
from hermes.lib import hints
from sessions_app import intake as sessions
from sessions_app import transcript
from sessions_app.models import Message, ModelEndpoint, Session, Summary, Turn
from tests.compression import states
from tests.races import explorer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

EVERY = 1 if os.environ.get("HERMES_TEST_SIZE") == "full" else 61


@pytest.fixture(autouse=True)
def _small_window(db, monkeypatch, caplog):
    caplog.set_level("CRITICAL")
    ModelEndpoint.objects.create(name="small", kind="offline", window=2_000)
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)


def _commit(state):
    return fence.commit(state.held.lease, state.written())


def _new(state):
    return sessions.new_session(**state.who, client_id="n")


def _cancel(state):
    return intake.cancel(session_id=state.attempt.session_id, actor="me")


def landed(result) -> bool:
    return isinstance(result, Commit)


def test_commit_and_append():
    def append(state):
        return transcript.start(state.claimed)

    def check(state, one, two):
        assert landed(one.result)
        assert two.result
        summary = Summary.objects.get(session=state.attempt.session_id)
        said = Message.objects.get(turn=state.turn)
        assert said.seq > summary.covers_through
        assert said.text == "what now?"

    explorer.explore("commit × append", states.held, _commit, append, check, every=EVERY)


def test_commit_and_cancel():
    def check(state, one, two):
        assert landed(one.result) != bool(two.result)
        attempt = state.fresh_attempt()
        assert attempt.status == ("committed" if landed(one.result) else "cancelled")
        assert Summary.objects.filter(session=attempt.session_id).exists() == landed(one.result)

    explorer.explore("commit × cancel", states.running, _commit, _cancel, check, every=EVERY)


def test_commit_and_new():
    def check(state, one, two):
        attempt = state.fresh_attempt()
        fresh = Session.objects.get(chat=state.chat, number=2)
        assert fresh.summary_id is None
        assert attempt.status in {"committed", "superseded"}
        assert not Cooldown.objects.filter(session=fresh).exists()
        if attempt.status == "superseded":
            assert attempt.reason == "session_ended"

    explorer.explore("commit × /new", states.running, _commit, _new, check, every=EVERY)


def test_commit_and_edit():
    def edit(state):
        first = Turn.objects.filter(chat=state.chat).order_by("pk").first()
        return sessions.edit_message(
            **state.who, turn_id=first.pk, client_turn_id="e", text="differently"
        )

    def check(state, one, two):
        session = state.session()
        assert session.summary is None  # what it covered has stepped out, whoever came first
        assert state.fresh_attempt().status in {"committed", "superseded"}

    explorer.explore("commit × edit", states.running, _commit, edit, check, every=EVERY)


def test_commit_and_undo():
    def setup():
        state = states.running()
        fence.commit(state.held.lease, state.written(covers=2))
        made = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
        assert isinstance(made, CompactionAttempt), made
        state.attempt = made
        state.held = fence.claim(made.pk, endpoint_id=None, model_name="m")
        return state

    def undo(state):
        return sessions.undo_summary(**state.who)

    def check(state, one, two):
        session = state.session()
        attempt = state.fresh_attempt()
        if attempt.status == "committed":
            assert session.summary is not None
            assert session.summary.covers_through == 2
        else:
            assert (attempt.status, attempt.reason) == ("superseded", "generation")
            assert session.summary is None

    explorer.explore("commit × undo", setup, _commit, undo, check, every=EVERY)


def test_release_and_commit():
    def release(state):
        return fence.release(state.attempt.pk, state.attempt.session_id)

    def check(state, one, two):
        assert landed(two.result)
        attempt = state.fresh_attempt()
        assert attempt.status == "committed"
        assert (attempt.hold_released_at is not None) == (one.result == "deferred")
        assert not Cooldown.objects.filter(session=attempt.session_id).exists()

    explorer.explore("release × commit", states.held, release, _commit, check, every=EVERY)


def test_hold_and_progress():
    def setup():
        state = states.running()
        from tests import factories

        state.turn = factories.say(state.chat, "hi")
        return state

    def hold(state):
        return fence.hold(state.attempt.pk, state.turn.pk, state.turn.session_id)

    def progress(state):
        return fence.progress(state.held.lease, 7)

    def check(state, one, two):
        attempt = state.fresh_attempt()
        assert one.result > 0
        assert two.result
        assert (attempt.progress, attempt.held_turn_id) == (7, state.turn.pk)

    explorer.explore("hold × progress", setup, hold, progress, check, every=EVERY)


def test_commit_and_commit_of_a_lost_one():
    def sweep(state):
        return fence.end(
            state.attempt.pk,
            state.attempt.session_id,
            "lost",
            intake.Reason.LEASE_EXPIRED,
            token=state.held.lease.token,
        )

    def check(state, one, two):
        assert landed(one.result) != bool(two.result)
        if not landed(one.result):
            assert isinstance(one.result, Fenced)

    explorer.explore("commit × sweep", states.running, _commit, sweep, check, every=EVERY)


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ninterleavings explored so far: {explorer.total.schedules} {explorer.total.by_pair}")
