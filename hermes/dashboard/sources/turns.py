"""Turns: what runs, what waits and for how long, how they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Min
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from hermes.dashboard import charts, domain
from hermes.dashboard.domain import Level
from hermes.lib.db import db_now
from sessions_app.domain import OPEN_TURN, TurnStatus
from sessions_app.models import History, Session, Turn

from .base import (
    Event,
    Link,
    Metric,
    Moment,
    Need,
    Panel,
    Picture,
    Source,
    Span,
    changelist,
)

ENDS: Final = (
    TurnStatus.COMPLETED,
    TurnStatus.FAILED,
    TurnStatus.CANCELLED,
    TurnStatus.INTERRUPTED,
)
TROUBLE: Final = {TurnStatus.FAILED, TurnStatus.INTERRUPTED}
LATE: Final = 30.0  # seconds after which the oldest queued turn is told as trouble
MOST: Final = 20_000  # turns of one look-up


# --- For the rollups ------------------------------------------------------------------------------


def events(span: Span) -> Iterator[Event]:
    """Turns that started and ended, from the history."""
    rows = History.objects.filter(
        kind="turn", pk__gt=span.history_id, at__gte=span.start, at__lt=span.end
    )
    started: list[int] = []
    for at, to, reason, subject in rows.values_list("at", "to", "reason", "subject").iterator():
        if to in ENDS:
            yield Event(at, "turns", to)
            if to in TROUBLE:
                yield Event(at, "turn_errors", reason or "unknown")
        elif to == TurnStatus.RUNNING:
            started.append(int(subject.partition(":")[2]))
    for n in range(0, len(started), MOST):
        waits = Turn.objects.filter(
            pk__in=started[n : n + MOST], started_at__gte=span.start, started_at__lt=span.end
        )
        for began, created in waits.values_list("started_at", "created_at"):
            assert began is not None  # noqa: S101 - the filter says so
            seconds = (began - created).total_seconds()
            yield Event(began, "waits", domain.bin_of(seconds), int(seconds * 1000))


# --- Now ------------------------------------------------------------------------------------------


def standing(picture: Picture) -> dict[str, Any]:
    """How many turns run, wait and are queued now, and how old the oldest queued one is."""
    if "turns" not in picture.shared:
        rows = Turn.objects.filter(status__in=sorted(OPEN_TURN)).order_by()
        counts = {
            status: (count, oldest)
            for status, count, oldest in rows.values("status")
            .annotate(n=Count("pk"), oldest=Min("created_at"))
            .values_list("status", "n", "oldest")
        }
        oldest: datetime | None = counts.get(TurnStatus.QUEUED, (0, None))[1]
        age = None if oldest is None else max(0.0, (picture.now - oldest).total_seconds())
        picture.shared["turns"] = {
            **{str(status): counts.get(status, (0, None))[0] for status in OPEN_TURN},
            "oldest_age": age,
        }
    found: dict[str, Any] = picture.shared["turns"]
    return found


def panels(picture: Picture) -> Iterable[Panel]:
    """Turns by what became of them."""
    ends = picture.counts("turns")
    waits = domain.wait_bins(picture.counts("waits"))
    begun = sum(count for *_bounds, count in waits)
    now = standing(picture)
    series = [
        charts.Series(_("failed"), "m-bad", picture.bars("turns", TurnStatus.FAILED)),
        charts.Series(_("interrupted"), "m-warn", picture.bars("turns", TurnStatus.INTERRUPTED)),
        charts.Series(_("stopped"), "m-quiet", picture.bars("turns", TurnStatus.CANCELLED)),
        charts.Series(_("answered"), "m-commit", picture.bars("turns", TurnStatus.COMPLETED)),
    ]
    links = [
        changelist("sessions_app.turn", f"status__exact={status}")
        for status in (
            TurnStatus.FAILED,
            TurnStatus.INTERRUPTED,
            TurnStatus.CANCELLED,
            TurnStatus.COMPLETED,
        )
    ]
    age = now["oldest_age"]
    data = {
        "queued": now["queued"],
        "waiting": now["waiting"],
        "oldest": None if age is None else domain.duration(age),
        "queued_url": changelist("sessions_app.turn", "status__exact=queued"),
        "waiting_url": changelist("sessions_app.turn", "status__exact=waiting"),
        "all_url": changelist("sessions_app.turn"),
        "ended": sum(ends.values()),
        "wait_p50": _told(waits, 0.5, begun),
        "wait_p95": _told(waits, 0.95, begun),
        "begun": begun,
        "chart": charts.stacked(picture.begins(), series, links, step=picture.range.step),
    }
    yield Panel("ends", "desk/parts/ends.html", 60, data)


def _told(bins: Any, share: float, count: int) -> str:
    value = domain.percentile(bins, share)
    if value is None or (share > 0.5 and count < domain.LEAST):
        return ""
    return domain.duration(value)


def needs(picture: Picture) -> Iterator[Need]:
    """Turns that wait too long."""
    now = standing(picture)
    age = now["oldest_age"]
    if age is not None and age > LATE:
        yield Need(
            Level.BAD if age > settings.HERMES_ALERT_QUEUED_SECONDS else Level.WARN,
            ngettext(
                "%(count)d message waits for its turn.",
                "%(count)d messages wait for their turn.",
                now["queued"],
            )
            % {"count": now["queued"]},
            _(
                "The oldest has waited for %(age)s. A session runs one turn at a time; if nothing "
                "runs, look at the workers."
            )
            % {"age": domain.duration(age)},
            [Link(_("Show the queue"), changelist("sessions_app.turn", "status__exact=queued"))],
        )


def metrics() -> Iterator[Metric]:
    """Turns now."""
    picture = Picture(db_now(), domain.RANGES["1h"])
    now = standing(picture)
    for status in sorted(OPEN_TURN):
        yield Metric(
            "hermes_turns", "Turns that are open, by state.", now[status], {"state": str(status)}
        )
    yield Metric(
        "hermes_oldest_queued_turn_seconds",
        "Age of the oldest queued turn; 0 where none is queued.",
        now["oldest_age"] or 0.0,
    )


# --- The timeline of a session --------------------------------------------------------------------

TONES: Final = {"failed": "bad", "interrupted": "warn"}


def moments(session: Session) -> Iterator[Moment]:
    """The turns of a session, with how long each waited and ran."""
    # By their last change, and not by their keys: for that order there is an index of a session.
    rows = Turn.objects.filter(session=session).order_by("-changed", "-pk")
    for turn in rows.defer("text", "error_text")[:500]:
        began = turn.started_at or turn.created_at
        facts = [
            _("waited %(time)s")
            % {"time": domain.duration((began - turn.created_at).total_seconds())}
        ]
        if turn.started_at is None:
            facts = [_("not started")]
        if turn.model_name:
            facts.append(turn.model_name)
        if turn.model_calls:
            facts.append(
                ngettext("%(n)d model call", "%(n)d model calls", turn.model_calls)
                % {"n": turn.model_calls}
            )
        if turn.prompt_tokens:
            tokens = domain.amount(turn.prompt_tokens + turn.completion_tokens)
            facts.append(_("%(n)s tokens") % {"n": tokens})
        if turn.error_code:
            facts.append(turn.error_code)
        ran = ""
        if turn.started_at is not None and turn.finished_at is not None:
            ran = domain.duration((turn.finished_at - turn.started_at).total_seconds())
        yield Moment(
            at=began,
            until=turn.finished_at,
            kind="turn",
            title=_("Turn %(pk)s from %(source)s: %(status)s")
            % {"pk": turn.pk, "source": _source(turn.source), "status": turn.status},
            facts=facts,
            tone=TONES.get(turn.status, ""),
            side=ran,
            subject=f"turn:{turn.pk}",
            bar={"failed": "m-bad", "interrupted": "m-warn"}.get(turn.status, "m-turn"),
        )


def _source(source: str) -> str:
    return {
        "person": _("a person"),
        "regenerate": _("a person (again)"),
        "continue": _("a person (go on)"),
        "completion": _("background processes"),
    }.get(source, source)


SOURCE: Final = Source(
    "turns",
    events=events,
    panels=panels,
    needs=needs,
    metrics=metrics,
    moments=moments,
    figures=("turns", "turn_errors", "waits"),
)
