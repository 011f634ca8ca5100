"""Counts by slots of time: made from the facts, again and again, so that none is missed.

The slots of the last minutes are counted anew at every run: a transaction that commits late is
still counted, and counting twice changes nothing. Hours are sums of slots, days sums of hours.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Max, Sum
from django.db.models.functions import TruncDay, TruncHour

from hermes.lib.db import db_now
from sessions_app.models import History

from .domain import DAY, HOUR, SLOT, Range, floor
from .models import Rollup, RollupMark
from .sources import SOURCES, Picture, Span
from .sources.base import SPAN_LIMIT

logger = logging.getLogger(__name__)

AGAIN: Final = 2  # slots before the open one that are counted again
# Days are kept for ever: counters are their sums, and a counter never falls.
KEPT: Final = {SLOT: timedelta(days=3), HOUR: timedelta(days=100)}
BACKWARDS: Final = timedelta(days=30)  # how far the first run looks
BATCH: Final = 5_000  # rows deleted a run
CATCH_UP: Final = 10.0  # seconds of one run, past which no other day is begun

Key = tuple[datetime, str, str]


def roll_up(now: datetime | None = None) -> datetime:
    """Count what happened up to now, at most a day of it; the time through which it is whole."""
    now = now or db_now()
    mark = RollupMark.objects.filter(pk="all").first()
    if mark is None:
        mark = RollupMark(name="all", through=floor(now - BACKWARDS, HOUR))
    is_back = floor(now, SLOT) < mark.through  # the clock was set back: its slots come again
    mark.through = min(mark.through, floor(now, SLOT))
    start = mark.through - timedelta(seconds=AGAIN * SLOT)
    if is_back:
        first = History.objects.filter(at__gte=start).order_by("pk").values_list("pk", flat=True)
        mark.history_id = min(mark.history_id, (first.first() or 1) - 1)
    end = min(floor(now, SLOT) + timedelta(seconds=SLOT), start + SPAN_LIMIT)
    span = Span(start, end, mark.history_id)
    _write(SLOT, _counted(span))
    _add_up(start, end)
    mark.through = min(floor(now, SLOT), end)
    again = mark.through - timedelta(seconds=(AGAIN + 1) * SLOT)
    mark.history_id = _passed(mark.history_id, again)
    mark.save()
    _forget(now)
    return mark.through


def catch_up(seconds: float = CATCH_UP) -> datetime:
    """Count day by day until now is reached, or the seconds are over; the time it is whole through.

    A new installation, and one that rested, so shows what happens now within one run.
    """
    over = time.monotonic() + seconds
    while (through := roll_up()) < floor(db_now(), SLOT) and time.monotonic() < over:
        pass
    return through


def _passed(history_id: int, again: datetime) -> int:
    """The row of the history below which none is as young as ``again``.

    Numbers and times nearly always rise together; where they do not, no younger row is passed over.
    """
    rows = History.objects.filter(pk__gt=history_id)
    first = rows.filter(at__gte=again).order_by("pk").values_list("pk", flat=True).first()
    if first is not None:
        return first - 1
    newest = rows.aggregate(most=Max("pk"))["most"]
    return history_id if newest is None else int(newest)


def _counted(span: Span) -> dict[Key, tuple[int, int]]:
    counts: Counter[Key] = Counter()
    totals: Counter[Key] = Counter()
    for source in SOURCES:
        for event in source.events(span):
            key = (floor(event.at, SLOT), event.figure, event.label[:48])
            counts[key] += 1
            totals[key] += event.total
    return {key: (count, totals[key]) for key, count in counts.items()}


def _write(width: int, counted: dict[Key, tuple[int, int]]) -> None:
    rows = [
        Rollup(width=width, at=at, figure=figure, label=label, count=count, total=total)
        for (at, figure, label), (count, total) in sorted(counted.items())
    ]
    Rollup.objects.bulk_create(
        rows,
        batch_size=1_000,
        update_conflicts=True,
        unique_fields=["width", "at", "figure", "label"],
        update_fields=["count", "total"],
    )


def _add_up(start: datetime, end: datetime) -> None:
    for width, finer, trunc in ((HOUR, SLOT, TruncHour), (DAY, HOUR, TruncDay)):
        first = floor(start, width)
        last = floor(end - timedelta(seconds=1), width) + timedelta(seconds=width)
        rows = (
            Rollup.objects.filter(width=finer, at__gte=first, at__lt=last)
            .annotate(slot=trunc("at", tzinfo=UTC))
            .values_list("slot", "figure", "label")
            .annotate(n=Sum("count"), m=Sum("total"))
            .order_by()
        )
        _write(width, {(at, figure, label): (n, m) for at, figure, label, n, m in rows})


def _forget(now: datetime) -> None:
    for width, kept in KEPT.items():
        old = Rollup.objects.filter(width=width, at__lt=now - kept)
        Rollup.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:BATCH])).delete()


def picture(now: datetime, chosen: Range, figures: Iterable[str] = ()) -> Picture:
    """The counts of a range, by figure and label, one number a bar; one query."""
    made = Picture(now, chosen)
    begin = chosen.begin(now)
    rows = Rollup.objects.filter(width=chosen.width, at__gte=begin, at__lte=now)
    if figures:
        rows = rows.filter(figure__in=list(figures))
    for at, figure, label, count, total in rows.values_list(
        "at", "figure", "label", "count", "total"
    ):
        n = int((at - begin).total_seconds() // chosen.step)
        labels = made.series.setdefault(figure, {})
        bars = labels.setdefault(label, [0] * chosen.bars)
        bars[n] += count
        sums = made.totals.setdefault(figure, {})
        sums[label] = sums.get(label, 0) + total
    return made
