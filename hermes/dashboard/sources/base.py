"""What an application contributes to the desk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.urls import NoReverseMatch, reverse

from hermes.dashboard.domain import Level, Range


@dataclass(frozen=True)
class Event:
    """Something that happened once, to be counted in its slot."""

    at: datetime
    figure: str
    label: str
    total: int = 0


@dataclass(frozen=True)
class Span:
    """The time that is rolled up, and where the history of that time begins."""

    start: datetime
    end: datetime
    history_id: int


@dataclass(frozen=True)
class Link:
    """Something that can be pressed."""

    label: str
    url: str
    is_primary: bool = False


@dataclass(frozen=True)
class Need:
    """What needs an operator: what, why and since when, and what to do."""

    level: Level
    what: str
    why: str
    links: Sequence[Link] = ()


@dataclass(frozen=True)
class Panel:
    """A part of the dashboard: a template, where it stands, and what it shows."""

    name: str
    template: str
    place: int  # panels stand in the order of their places
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A number for Prometheus, read when it is asked for."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: str = "gauge"


@dataclass(frozen=True)
class Moment:
    """Something in the timeline of a session."""

    at: datetime
    kind: str  # turn, hold, attempt, cooldown, process, completion, operator
    title: str
    facts: Sequence[str] = ()
    tone: str = ""  # ok, warn, bad, op
    side: str = ""  # how long, or with what outcome
    until: datetime | None = None
    subject: str = ""
    bar: str = ""  # class of its bar in the lanes; empty: none
    order: int = 0


@dataclass
class Picture:
    """What every panel of one page reads: the time, the range, and the counts of the range.

    ``series`` holds, by figure and label, the count of each bar; ``sums`` and ``totals`` add up.
    """

    now: datetime
    range: Range
    series: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)

    def counts(self, figure: str) -> dict[str, int]:
        """How often each label of a figure occurred in the range."""
        return {label: sum(bars) for label, bars in self.series.get(figure, {}).items()}

    def bars(self, figure: str, *labels: str) -> list[int]:
        """The counts of some labels together, one number a bar."""
        rows = [self.series.get(figure, {}).get(label, []) for label in labels]
        return [sum(row[n] for row in rows if row) for n in range(self.range.bars)]

    def begins(self) -> list[datetime]:
        """Where each bar begins."""
        first = self.range.begin(self.now)
        return [first + timedelta(seconds=self.range.step * n) for n in range(self.range.bars)]


def _no_panels(picture: Picture) -> Iterable[Panel]:
    return ()


def _no_needs(picture: Picture) -> Iterable[Need]:
    return ()


def _no_metrics() -> Iterable[Metric]:
    return ()


def _no_moments(session: Any) -> Iterable[Moment]:
    return ()


@dataclass(frozen=True)
class Source:
    """What one application contributes."""

    name: str
    events: Callable[[Span], Iterable[Event]]  # what happened in a span, for the rollups
    panels: Callable[[Picture], Iterable[Panel]] = _no_panels
    needs: Callable[[Picture], Iterable[Need]] = _no_needs
    metrics: Callable[[], Iterable[Metric]] = _no_metrics
    moments: Callable[[Any], Iterable[Moment]] = _no_moments
    figures: Sequence[str] = ()  # that its panels read


def changelist(model: str, query: str = "") -> str:
    """The list behind a number: ``changelist("sessions_app.turn", "status__exact=queued")``."""
    try:
        url = reverse(f"admin:{model.replace('.', '_')}_changelist")
    except NoReverseMatch:  # a list that this installation does not have
        return ""
    return f"{url}?{query}" if query else url


def summed(rows: Iterable[tuple[str, str, int, int]]) -> dict[str, dict[str, int]]:
    """Totals by figure and label."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for figure, label, _, total in rows:
        found[figure][label] = found[figure].get(label, 0) + total
    return found


SPAN_LIMIT: Final = timedelta(days=1)  # rolled up in one go
