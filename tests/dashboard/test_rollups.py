"""Rollups: counted from facts, as often as one likes, and never twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from compression_app import fence
from compression_app.models import CompactionAttempt
from hermes.dashboard import domain, rollups, sweeps
from hermes.dashboard.models import Rollup, RollupMark
from hermes.lib.db import db_now
from sessions_app.models import History, Turn
from sessions_app.transcript import moving_history
from tests import states

from .conftest import attempt, failed, small_model, up_to_now

pytestmark = pytest.mark.django_db


def counted(figure: str, width: int = domain.SLOT) -> dict[str, int]:
    rows = Rollup.objects.filter(figure=figure, width=width)
    return dict(rows.values_list("label").annotate(n=Sum("count")).order_by())


def test_ends_and_waits_of_turns_are_counted_once_however_often_they_are_rolled_up():
    states.fresh()
    states.fresh()
    up_to_now()
    rollups.roll_up()

    assert counted("turns") == {"completed": 2}
    assert sum(counted("waits").values()) == 2
    assert counted("turns", domain.HOUR) == counted("turns", domain.DAY) == {"completed": 2}


def test_what_happens_after_a_rollup_is_counted_by_the_next():
    up_to_now()
    states.fresh()
    rollups.roll_up()

    assert counted("turns") == {"completed": 1}


def test_a_row_that_was_committed_late_is_still_counted():
    states.fresh()
    up_to_now()
    mark = RollupMark.objects.get()
    with moving_history():
        History.objects.filter(kind="turn").update(at=db_now() - timedelta(seconds=domain.SLOT))
    rollups.roll_up()

    assert mark.history_id < History.objects.filter(kind="turn").first().pk
    earlier = domain.floor(db_now() - timedelta(seconds=domain.SLOT), domain.SLOT)
    assert Rollup.objects.filter(width=domain.SLOT, figure="turns", at=earlier).exists()


def test_a_clock_that_was_set_back_makes_no_count_smaller():
    past = domain.floor(db_now(), domain.SLOT) - timedelta(minutes=40)

    def happens(at):
        known = set(History.objects.values_list("pk", flat=True))
        states.fresh()
        with moving_history():
            History.objects.exclude(pk__in=known).update(at=at)

    happens(past)
    up_to_now()
    for seconds in (300, 310, 320):
        happens(past + timedelta(seconds=1))
        rollups.roll_up(past + timedelta(seconds=seconds))
    assert counted("turns") == {"completed": 4}
    up_to_now()
    assert counted("turns") == {"completed": 4}


def test_hours_and_days_are_those_of_utc_whoever_asks():
    states.fresh()
    with timezone.override("Asia/Kolkata"):
        up_to_now()
    found = Rollup.objects.filter(figure="turns", width__gt=domain.SLOT)
    assert {row.at for row in found} == {domain.floor(row.at, row.width) for row in found}


def test_attempts_tell_outcome_cause_tokens_and_how_long_a_turn_was_held():
    small_model()
    failed()
    held = attempt()
    fence.hold(held.pk, 1, held.session_id)
    now = db_now()
    CompactionAttempt.objects.filter(pk=held.pk).update(
        hold_started_at=now - timedelta(seconds=4.2)
    )
    fence.end(held.pk, held.session_id, "cancelled", "cancelled")
    up_to_now()

    assert counted("attempts") == {"failed": 1, "ended": 1}
    assert counted("attempt_reasons") == {"stalled": 1, "cancelled": 1}
    assert counted("holds") == {"4": 1}
    assert Rollup.objects.get(figure="attempts", label="failed", width=300).total == 1000


def test_a_deferred_attempt_counts_as_adopted_or_ended():
    small_model()
    held = attempt()
    fence.hold(held.pk, 1, held.session_id)
    fence.release(held.pk, held.session_id)
    fence.end(held.pk, held.session_id, "lost", "lease_expired")
    up_to_now()

    assert counted("deferred") == {"ended": 1}


def test_a_new_installation_shows_what_happens_now_with_the_first_run():
    states.fresh()
    now = domain.floor(db_now(), domain.SLOT)
    assert sweeps.sweep(force=True)

    assert RollupMark.objects.get().through >= now
    assert counted("turns") == {"completed": 1}


def test_a_run_begins_no_other_day_when_its_time_is_over():
    assert rollups.catch_up(0) == domain.floor(
        db_now() - timedelta(days=29), domain.HOUR
    ) - timedelta(seconds=rollups.AGAIN * domain.SLOT)


def test_the_past_is_rolled_up_a_day_at_a_time():
    states.fresh()
    with moving_history():
        History.objects.filter(kind="turn").update(at=db_now() - timedelta(days=3))
    Turn.objects.update(started_at=db_now() - timedelta(days=3))
    first = rollups.roll_up()
    assert first < db_now() - timedelta(days=28)
    up_to_now()

    assert counted("turns", domain.DAY) == {"completed": 1}


def test_old_slots_are_forgotten_and_their_days_stay():
    old = domain.floor(db_now() - timedelta(days=4), domain.DAY)
    for width in (domain.SLOT, domain.DAY):
        Rollup.objects.create(width=width, at=old, figure="turns", label="completed", count=1)
    up_to_now()

    assert list(Rollup.objects.values_list("width", flat=True)) == [domain.DAY]


def test_the_sweep_rolls_up_when_it_is_due_and_only_then():
    assert sweeps.sweep() is True
    assert sweeps.sweep() is False
    assert sweeps.sweep(force=True) is True
