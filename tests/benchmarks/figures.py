"""What a benchmark brings: figures with their targets, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hermes import env


@dataclass
class Figure:
    """One number, what it is to be at most, and what it was made of."""

    id: str
    what: str
    value: float
    target: float
    unit: str = "×"
    p95: float | None = None  # of the same, where that says more than the median
    rounds: int = 1
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether the number is within its target."""
        return self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        """The figure as JSON carries it."""
        return {**dataclasses.asdict(self), "met": self.is_met}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all lie (nearest rank).

    >>> percentile([5, 1, 2, 4, 3], 0.95), percentile([1, 2, 3, 4], 0.5)
    (5, 2)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class Compared:
    """Two things measured in turn: ``ratio`` is the median of the rounds' ratios."""

    a: list[list[float]] = field(default_factory=list)  # seconds, by round
    b: list[list[float]] = field(default_factory=list)

    def add(self, a: Sequence[float], b: Sequence[float]) -> None:
        """One more round of both."""
        self.a.append(list(a))
        self.b.append(list(b))

    @property
    def rounds(self) -> int:
        return len(self.a)

    @property
    def ratio(self) -> float:
        pairs = zip(self.a, self.b, strict=True)
        return statistics.median(statistics.median(b) / statistics.median(a) for a, b in pairs)

    @property
    def p95(self) -> float:
        """The ratio of the two 95th percentiles, all rounds together."""
        flat = [[one for each in side for one in each] for side in (self.a, self.b)]
        return percentile(flat[1], 0.95) / percentile(flat[0], 0.95)

    @property
    def detail(self) -> dict[str, float]:
        """The medians of both in milliseconds."""
        sides = {"a_ms": self.a, "b_ms": self.b}
        return {
            name: round(1000 * statistics.median(one for each in side for one in each), 3)
            for name, side in sides.items()
        }

    def figure(self, id: str, what: str, target: float, **detail: Any) -> Figure:
        """The ratio as a figure."""
        return Figure(
            id,
            what,
            round(self.ratio, 3),
            target,
            p95=round(self.p95, 3),
            rounds=self.rounds,
            detail={**self.detail, **detail},
        )


def in_turn(
    a: Callable[[], float], b: Callable[[], float], *, rounds: int, repeats: int
) -> Compared:
    """Measure two calls, which return seconds, one after the other, in rounds of so many."""
    compared = Compared()
    a(), b()
    for _ in range(rounds):
        pairs = [(a(), b()) for _ in range(repeats)]
        compared.add([one for one, _ in pairs], [other for _, other in pairs])
    return compared


def surroundings() -> dict[str, Any]:
    """What the figures were measured on and of."""
    return {
        "commit": commit(),
        "cores": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def commit() -> str:
    """The commit of the tree; with ``+`` where files differ from it."""
    told = []
    for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno"]):
        done = subprocess.run(["git", *words], cwd=env.BASE, capture_output=True, text=True)
        told.append(done.stdout.strip() if done.returncode == 0 else "")
    return (told[0] or "unknown") + ("+" if told[1] else "")


def table(figures: Sequence[Figure]) -> str:
    """The figures in lines."""
    rows = [("", "figure", "value", "p95", "target", "")]
    for one in figures:
        p95 = "" if one.p95 is None else f"{one.p95:g}"
        value, target = f"{one.value:g} {one.unit}", f"≤ {one.target:g}"
        rows.append((one.id, one.what, value, p95, target, "" if one.is_met else "MISSED"))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
