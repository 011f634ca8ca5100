"""A turn above the hard mark: held within its budget, answered in any case (H1–H6, R1–R6)."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from compression_app import fence, intake, sweeps
from compression_app.domain import Reason
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib.leases import renewer
from sessions_app import intake as sessions
from sessions_app import runner
from sessions_app.models import Message, Session, Summary
from tests import factories
from tests.compression.conftest import newest_attempt, session_over_mark, until
from tests.races.explorer import started
from tests.scripted.behaviour import Behaviour

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]

SUMMARY = "## Goal\nShip it.\n\n## Done\nMuch.\n\n## Next step\nGo on."


def say(state, text="hello"):
    turn = factories.say(state.chat, text)
    began = time.monotonic()
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    return turn, time.monotonic() - began


def streak(state) -> int:
    found = CompressionState.objects.filter(session__chat=state.chat).first()
    return 0 if found is None else found.streak


def session(state) -> Session:
    return Session.objects.select_related("summary").get(chat=state.chat)


def test_a_summary_within_the_hold_is_used_by_the_turn(scripted, worker, settings):
    settings.HERMES_TURN_HOLD_SECONDS = 10
    state = session_over_mark()
    turn, took = say(state)

    assert turn.status == "completed"
    assert took < 5
    attempt = newest_attempt()
    assert (attempt.status, attempt.watermark) == ("committed", 6)
    assert attempt.after_tokens < attempt.before_tokens
    sent = scripted.requests("fake-chat")[-1]["body"]["messages"]
    assert "Memory of the earlier part" in sent[0]["content"]
    assert sent[-1]["content"] == "hello"
    assert scripted.violations() == []


class TestDeferred:
    """The founding situation: fenced, streams past the hold."""

    @pytest.fixture
    def deferred(self, scripted, worker):
        scripted.script(
            "fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=3, reasoning="hm")
        )
        state = session_over_mark()
        turn, took = say(state)
        assert (turn.status, took < 5) == ("completed", True)
        assert len(scripted.requests("fake-chat")) == 1
        return state

    def test_nothing_is_burned_while_it_streams(self, deferred, scripted):
        attempt = newest_attempt()
        assert (attempt.status, attempt.watermark) == ("running", 6)
        assert attempt.hold_released_at is not None
        assert not Cooldown.objects.exists()
        assert streak(deferred) == 0
        scripted.release("go")

    def test_it_is_adopted_late(self, deferred, scripted, worker):
        above = Message.objects.filter(session__chat=deferred.chat, seq__gt=6)
        before = list(above.values_list("seq", "text"))
        scripted.release("go")
        worker[0].join(10)
        summary = Summary.objects.get()
        attempt = newest_attempt()
        assert (attempt.status, attempt.watermark) == ("committed", 6)
        assert summary.covers_through <= 6
        assert session(deferred).summary == summary
        assert list(above.all().values_list("seq", "text")) == before
        assert not Cooldown.objects.exists()
        assert streak(deferred) == 0
        scripted.wait(lambda report: report["counts"]["fake-sum"] == {"open": 0, "closed": 1})
        turn, _ = say(deferred, "and on")
        assert turn.status == "completed"
        assert CompactionAttempt.objects.count() == 1

    def test_it_fails_late(self, deferred, scripted, worker):
        scripted.script("fake-sum", default=Behaviour(text="no sections"))
        attempt = newest_attempt()
        assert not Cooldown.objects.exists()
        fence.end(attempt.pk, attempt.session_id, "lost", Reason.LEASE_EXPIRED)
        scripted.release("go")
        worker[0].join(10)

        cooldown = Cooldown.objects.get()
        assert (cooldown.kind, cooldown.reason) == ("flat", "turn-hold: lease_expired")
        assert cooldown.until - cooldown.created_at <= timedelta(seconds=120)
        assert streak(deferred) == 0
        assert not Summary.objects.exists()

    def test_later_turns_are_not_held_again(self, deferred, scripted):
        turn, took = say(deferred, "and then?")
        assert (turn.status, took < 2) == ("completed", True)
        assert CompactionAttempt.objects.count() == 1
        scripted.release("go")

    def test_a_reset_supersedes_it(self, deferred, scripted, worker):
        sessions.new_session(**deferred.who, client_id="n")
        until(lambda: newest_attempt().status == "superseded")
        scripted.release("go")
        worker[0].join(10)
        assert newest_attempt().reason == "session_ended"
        assert not Cooldown.objects.exists()
        assert not Summary.objects.exists()

    def test_an_edit_supersedes_it(self, deferred, scripted, worker):
        sessions.rewind_to(**deferred.who)
        until(lambda: newest_attempt().status == "superseded")
        scripted.release("go")
        worker[0].join(10)
        assert newest_attempt().reason == "generation"
        assert not Summary.objects.exists()

    def test_a_person_may_cancel_it(self, deferred, scripted, worker):
        attempt = newest_attempt()
        assert intake.cancel(session_id=attempt.session_id, actor="me")
        worker[0].join(3)
        assert not worker[0].is_alive()
        scripted.wait(lambda report: report["counts"]["fake-sum"]["open"] == 0)
        assert not intake.cancel(session_id=attempt.session_id)
        assert Cooldown.objects.get().kind == "flat"


def test_a_deferred_attempt_that_fails_arms_one_flat_retry(scripted, worker):
    scripted.script(
        "fake-sum", default=Behaviour(text="no sections at all here", hold="go", hold_at=2)
    )
    state = session_over_mark()
    say(state)
    assert not Cooldown.objects.exists()
    scripted.release("go")
    worker[0].join(10)

    cooldown = Cooldown.objects.get()
    assert (cooldown.kind, cooldown.reason) == ("flat", "turn-hold: missing_sections")
    assert streak(state) == 0


def test_an_unfenced_attempt_is_cancelled_at_the_end_of_the_hold(scripted, worker, monkeypatch):
    scripted.script("fake-sum", default=Behaviour(text="too late", hold="go", hold_at=1))
    original = fence.open_attempt

    def without_watermark(*args, **columns):
        attempt = original(*args, **columns)
        CompactionAttempt.objects.filter(pk=attempt.pk).update(watermark=None)
        return attempt

    monkeypatch.setattr(fence, "open_attempt", without_watermark)
    state = session_over_mark()
    turn, _ = say(state)
    assert turn.status == "completed"
    assert newest_attempt().status == "cancelled"
    cooldown = Cooldown.objects.get()
    assert (cooldown.kind, cooldown.reason) == ("flat", "turn-hold: hold_expired")
    scripted.release("go")
    worker[0].join(10)
    assert not Summary.objects.exists()
    assert not Message.objects.filter(text__contains="too late").exists()
    assert streak(state) == 0


def test_a_real_failure_climbs_the_ladder(scripted, worker, settings):
    settings.HERMES_TURN_HOLD_SECONDS = 10
    settings.HERMES_FAILURE_COOLDOWN_SECONDS = 120
    scripted.script("fake-sum", default=Behaviour(text="nothing of the kind"))
    state = session_over_mark()
    say(state)
    assert streak(state) == 1
    first = Cooldown.objects.get()
    assert first.kind == "ladder"
    seconds = (first.until - first.created_at).total_seconds()
    assert 100 < seconds < 140

    say(state, "again")
    assert CompactionAttempt.objects.count() == 1  # a cooldown is on
    Cooldown.objects.update(until=first.created_at)
    say(state, "and again")
    until(lambda: (streak(state), CompactionAttempt.objects.count()) == (2, 2))

    scripted.script("fake-sum", default=Behaviour(text=SUMMARY))
    Cooldown.objects.update(until=first.created_at)
    say(state, "at last")
    until(lambda: newest_attempt().status == "committed")
    assert streak(state) == 0


def test_undo_lets_the_model_read_everything_again(scripted, worker, settings):
    settings.HERMES_TURN_HOLD_SECONDS = 10
    state = session_over_mark()
    say(state)
    summary = Summary.objects.get()
    sessions.undo_summary(**state.who, summary_id=summary.pk)

    after = session(state)
    assert after.summary is None
    summary.refresh_from_db()
    assert summary.reverted_at is not None
    say(state, "what now?")
    assert CompactionAttempt.objects.count() == 1  # what a person has undone is not redone at once


def test_a_lost_worker_is_found_by_the_sweep(scripted, worker, settings):
    scripted.script("fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=1))
    state = session_over_mark()
    opened = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
    until(lambda: newest_attempt().status == "running")
    CompactionAttempt.objects.update(lease_expires_at=newest_attempt().opened_at)
    assert sweeps.end_abandoned() == 1
    assert sweeps.end_abandoned() == 0
    scripted.release("go")
    worker[0].join(10)
    opened.refresh_from_db()
    assert (opened.status, opened.reason) == ("lost", "lease_expired")
    assert not Summary.objects.exists()
    assert Cooldown.objects.get().kind == "flat"
    assert streak(state) == 0


def test_a_worker_that_leaves_does_not_stay_for_a_hold(scripted, worker, settings):
    settings.HERMES_TURN_HOLD_SECONDS = 60
    scripted.script("fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=1))
    state = session_over_mark()
    turn = factories.say(state.chat, "hello")
    held = started(lambda: runner.run_turns(turn.session_id))
    until(lambda: newest_attempt() and newest_attempt().hold_started_at)
    renewer.leave()
    held.join(5)
    renewer.stay()
    scripted.release("go")

    assert not held.is_alive()
    turn.refresh_from_db()
    assert turn.status == "queued"
