"""Slots of time, bins of durations, levels of trouble: pure functions of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

SLOT: Final = 300  # seconds of the finest slot
HOUR: Final = 3_600
DAY: Final = 86_400
LEAST: Final = 20  # values below which no 95th percentile is told


class Level(StrEnum):
    """How bad something is."""

    NONE = "none"  # not known yet
    OK = "ok"
    WARN = "warn"  # degraded
    BAD = "bad"  # people lose something now


ORDER: Final = (Level.NONE, Level.OK, Level.WARN, Level.BAD)


def worst(levels: Sequence[Level]) -> Level:
    """The worst of some levels; of none, that all is well.

    >>> worst([Level.OK, Level.BAD, Level.WARN]), worst([])
    (<Level.BAD: 'bad'>, <Level.OK: 'ok'>)
    """
    return max(levels, key=ORDER.index, default=Level.OK)


@dataclass(frozen=True)
class Range:
    """A choice of how much time a page looks at, and in how many bars."""

    name: str
    label: str
    step: int  # seconds of a bar
    bars: int
    width: int  # of the rollups that it reads

    def begin(self, now: datetime) -> datetime:
        """Where the first bar begins; the last one is the one that ``now`` is in."""
        return floor(now, self.step) - timedelta(seconds=self.step * (self.bars - 1))


RANGES: Final[Mapping[str, Range]] = {
    each.name: each
    for each in (
        Range("1h", "1 h", 300, 12, SLOT),
        Range("24h", "24 h", 3_600, 24, HOUR),
        Range("7d", "7 d", 21_600, 28, HOUR),
        Range("30d", "30 d", 86_400, 30, DAY),
    )
}


def floor(at: datetime, seconds: int) -> datetime:
    """Where the slot of a time begins, on the grid of UTC.

    >>> floor(datetime(2026, 11, 30, 14, 32, 8, tzinfo=UTC), 300).strftime("%H:%M:%S")
    '14:30:00'
    """
    whole = int(at.timestamp()) // seconds * seconds
    return datetime.fromtimestamp(whole, UTC)


# Upper bounds of bins, in seconds; the last bin is open.
WAITS: Final = (
    0.1,
    0.25,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
)
ABOVE: Final = "above"


def bin_of(seconds: float, bounds: Sequence[float] = WAITS) -> str:
    """The label of the bin that a duration falls into.

    >>> bin_of(0.05), bin_of(0.1), bin_of(4_000)
    ('0.1', '0.25', 'above')
    """
    return next((f"{bound:g}" for bound in bounds if seconds < bound), ABOVE)


def hold_bin(seconds: float, *, released: bool, budget: float) -> str:
    """The label of a hold: whole seconds, that its budget let it go, or that it went beyond.

    >>> hold_bin(4.2, released=False, budget=10), hold_bin(10.02, released=True, budget=10)
    ('4', 'released')
    >>> hold_bin(12, released=True, budget=10)
    'over'
    """
    if seconds > budget + 1:
        return "over"
    return "released" if released or seconds >= budget else str(int(max(0.0, seconds)))


def percentile(bins: Sequence[tuple[float, float, int]], share: float) -> float | None:
    """The value below which a share of all lies, spread evenly inside a bin; None of nothing.

    ``bins`` are (from, to, count), ascending; ``share`` is between 0 and 1.

    >>> percentile([(0, 1, 10), (1, 2, 10)], 0.5), percentile([], 0.5)
    (1.0, None)
    >>> percentile([(0, 1, 0), (10, 10, 4)], 0.95)
    10.0
    """
    whole = sum(count for *_, count in bins)
    if not whole:
        return None
    left = share * whole
    for low, high, count in bins:
        if count and left <= count:
            return float(low + (high - low) * left / count)
        left -= count
    return float(bins[-1][1])


def hold_bins(counts: Mapping[str, int], budget: float) -> list[tuple[float, float, int]]:
    """The holds of some slots as bins for :func:`percentile`."""
    whole = sorted((int(label), count) for label, count in counts.items() if label.isdigit())
    bins = [(float(second), min(second + 1.0, budget), count) for second, count in whole]
    bins.append((budget, budget, counts.get("released", 0)))
    bins.append((budget + 1, budget + 1, counts.get("over", 0)))
    return bins


def wait_bins(counts: Mapping[str, int]) -> list[tuple[float, float, int]]:
    """The waits of some slots as bins for :func:`percentile`."""
    bins, low = [], 0.0
    for bound in WAITS:
        bins.append((low, bound, counts.get(f"{bound:g}", 0)))
        low = bound
    return [*bins, (low, low, counts.get(ABOVE, 0))]


def duration(seconds: float) -> str:
    """A length of time in words, as short as it can be read.

    >>> duration(0.34), duration(41), duration(372), duration(7_864), duration(200_000)
    ('0.3 s', '41 s', '6 min 12 s', '2 h 11 min', '2 d 7 h')
    """
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // 60} min {whole % 60} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // 60} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def amount(number: float) -> str:
    """A large number as people say it.

    >>> amount(512), amount(38_240), amount(1_910_000)
    ('512', '38.2k', '1.91M')
    """
    if number >= 1_000_000:
        return f"{number / 1_000_000:.2f}M"
    return f"{number / 1_000:.1f}k" if number >= 10_000 else f"{int(number):,}"
