"""Charts as numbers for an SVG: where each bar stands; the words are in HTML round it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

WIDE, HIGH = 20, 200  # units of a bar and of the plot
GAP: Final = 3
STEPS: Final = (1, 2, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Series:
    """One outcome over time; trouble first, where heights compare."""

    label: str
    paint: str  # class of its rectangles; "hatch" is the pattern
    counts: Sequence[int]


@dataclass(frozen=True)
class Bar:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    paint: str


@dataclass(frozen=True)
class Entry:
    """A line of the legend."""

    label: str
    paint: str
    total: int
    url: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table that says the same in numbers."""

    at: datetime
    counts: Sequence[int]
    is_open: bool


@dataclass(frozen=True)
class Chart:
    """A stacked chart of bars, zero at the base."""

    width: int
    top: int
    bars: Sequence[Bar]
    ticks: Sequence[datetime]
    entries: Sequence[Entry]
    rows: Sequence[Row]
    total: int
    step: int

    @property
    def future_x(self) -> int:
        """Where the bar begins that is not over."""
        return self.width - WIDE

    @property
    def heads(self) -> list[str]:
        """The heads of the table: the legend's labels, as they are stacked from the top."""
        return [entry.label for entry in self.entries]


def top_of(most: int) -> int:
    """The top of an axis: the smallest round number that nothing goes above.

    >>> [top_of(n) for n in (0, 3, 7, 9, 11, 20, 21, 233)]
    [2, 4, 8, 10, 20, 20, 30, 300]
    """
    unit = 1
    while True:
        for step in STEPS:
            if step * unit >= max(most, 2) and (step * unit) % 2 == 0:
                return step * unit
        unit *= 10


def stacked(
    begins: Sequence[datetime], series: Sequence[Series], urls: Sequence[str], *, step: int
) -> Chart:
    """A chart of bars that are stacked in the order of the series, the first at the base."""
    sums = [sum(each.counts[n] for each in series) for n in range(len(begins))]
    top = top_of(max(sums, default=0))
    bars = []
    for n in range(len(begins)):
        base = float(HIGH)
        for each in series:
            count = each.counts[n]
            if count:
                high = count / top * HIGH
                bars.append(
                    Bar(
                        n * WIDE + GAP,
                        round(base - high, 1),
                        WIDE - 2 * GAP,
                        round(max(0.8, high - 1.4), 1),
                        each.paint,
                    )
                )
                base -= high
    entries = [
        Entry(each.label, each.paint, sum(each.counts), url)
        for each, url in zip(series, urls, strict=True)
    ][::-1]
    rows = [
        Row(at, [each.counts[n] for each in reversed(series)], n == len(begins) - 1)
        for n, at in enumerate(begins)
    ]
    ticks = [begins[n * len(begins) // 6] for n in range(6)] if begins else []
    return Chart(len(begins) * WIDE, top, bars, ticks, entries, rows, sum(sums), step)


@dataclass(frozen=True)
class Holds:
    """How long turns were held, by whole seconds; the last bar is those let go at the budget."""

    width: int
    top: int
    bars: Sequence[Bar]
    labels: Sequence[tuple[str, int]]
    total: int
    released: int
    budget: int


def holds(counts: Mapping[str, int], budget: float) -> Holds:
    """The chart of holds: a bar a second up to the budget, then those released, and beyond."""
    seconds = max(1, int(budget))
    labels = [(f"{n}–{n + 1} s", counts.get(str(n), 0)) for n in range(seconds)]
    released = counts.get("released", 0) + counts.get("over", 0)
    labels.append((f"released at {seconds} s", released))
    top = top_of(max(count for _, count in labels))
    bars = [
        Bar(
            n * WIDE + 2,
            round(100 - count / top * 100, 1),
            WIDE - 4,
            round(count / top * 100, 1),
            "m-turn" if n == seconds else "m-quiet",
        )
        for n, (_, count) in enumerate(labels)
        if count
    ]
    total = sum(count for _, count in labels)
    return Holds(len(labels) * WIDE, top, bars, labels, total, released, seconds)


@dataclass(frozen=True)
class Lane:
    """One kind of thing over the time of a timeline."""

    name: str
    y: int
    bars: Sequence[tuple[float, float, str, str]]  # x, width, class, title
    points: Sequence[tuple[float, str, str]]  # x, class, title


@dataclass(frozen=True)
class Lanes:
    """The lanes of a timeline, ``width`` units for its seconds."""

    width: int
    height: int
    lanes: Sequence[Lane]
    now_x: float | None
    ticks: Sequence[datetime]


LANE: Final = 24
SPAN: Final = 4_200


def place(at: datetime, begin: datetime, end: datetime) -> float:
    """Where a time stands between two others, in units of the plot, never outside.

    >>> from datetime import UTC
    >>> a, b = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    >>> place(datetime(2026, 1, 1, 12, tzinfo=UTC), a, b)
    2100.0
    """
    whole = max(1.0, (end - begin).total_seconds())
    return round(min(max((at - begin).total_seconds() / whole, 0.0), 1.0) * SPAN, 1)


def ticks_of(begin: datetime, end: datetime, count: int = 8) -> list[datetime]:
    """Times at even distances from the first to the last."""
    step = (end - begin) / (count - 1)
    return [begin + timedelta(seconds=step.total_seconds() * n) for n in range(count)]
