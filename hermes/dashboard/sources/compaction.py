"""Compaction: attempts by outcome, holds, what was adopted late, streaks, cooldowns, spending."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Max, Min, OuterRef, Q, Subquery
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from compression_app.domain import BREAKER_AT, AttemptStatus, CooldownKind
from compression_app.models import NOTED, OPEN, CompactionAttempt, CompressionState, Cooldown
from hermes.dashboard import charts, domain
from hermes.dashboard.domain import Level
from hermes.lib.chat import ErrorKind
from hermes.lib.db import db_now

from . import turns
from .base import (
    Event,
    Link,
    Metric,
    Need,
    Panel,
    Picture,
    Source,
    Span,
    changelist,
)
from .compaction_moments import moments

ATTEMPTS: Final = "compression_app.compactionattempt"
COOLDOWNS: Final = "compression_app.cooldown"
STATES: Final = "compression_app.compressionstate"
SHOWN: Final = 8  # rows of the table of streaks
PAUSED_LONG: Final = 3600.0  # seconds after which a pause may have been forgotten
OUTCOMES: Final = {
    AttemptStatus.FAILED: "failed",
    AttemptStatus.LOST: "lost",
    AttemptStatus.SUPERSEDED: "ended",
    AttemptStatus.CANCELLED: "ended",
    AttemptStatus.COMMITTED: "committed",
}


# --- For the rollups ------------------------------------------------------------------------------


def events(span: Span) -> Iterator[Event]:
    """Attempts that ended: outcome and tokens, why they failed, how long their turn was held."""
    rows = CompactionAttempt.objects.filter(
        finished_at__gte=span.start, finished_at__lt=span.end
    ).values_list(
        "finished_at",
        "status",
        "reason",
        "prompt_tokens",
        "completion_tokens",
        "hold_started_at",
        "hold_released_at",
    )
    budget = settings.HERMES_TURN_HOLD_SECONDS
    for at, status, reason, prompt, completion, held, released in rows.iterator():
        assert at is not None  # noqa: S101 - the filter says so
        outcome = OUTCOMES[AttemptStatus(status)]
        if outcome == "committed" and released is not None:
            outcome = "adopted"
        yield Event(at, "attempts", outcome, prompt + completion)
        if outcome not in {"committed", "adopted"}:
            yield Event(at, "attempt_reasons", reason or "unknown", prompt + completion)
        if released is not None:
            yield Event(at, "deferred", "adopted" if outcome == "adopted" else "ended")
        if held is not None:
            seconds = ((released or at) - held).total_seconds()
            label = domain.hold_bin(seconds, released=released is not None, budget=budget)
            yield Event(at, "holds", label, int(seconds * 1000))


# --- Now ------------------------------------------------------------------------------------------


def standing(picture: Picture) -> dict[str, Any]:
    """Attempts that are open now, and turns that are held."""
    if "compaction" not in picture.shared:
        rows = CompactionAttempt.objects.filter(status__in=OPEN).order_by()
        told = rows.aggregate(
            queued=Count("pk", filter=Q(status="queued")),
            running=Count("pk", filter=Q(status="running")),
            held=Count("pk", filter=Q(hold_started_at__isnull=False, hold_released_at=None)),
            oldest=Min("opened_at", filter=Q(status="queued")),
        )
        oldest: datetime | None = told["oldest"]
        told["oldest_age"] = (
            None if oldest is None else max(0.0, (picture.now - oldest).total_seconds())
        )
        picture.shared["compaction"] = told
    found: dict[str, Any] = picture.shared["compaction"]
    return found


def streaks(picture: Picture) -> list[CompressionState]:
    """Sessions whose last attempts failed, the longest streak first."""
    if "streaks" not in picture.shared:
        last = CompactionAttempt.objects.filter(session=OuterRef("session")).order_by("-pk")
        ended = last.filter(status__in=["failed", "lost"])
        until = Cooldown.objects.active().filter(session=OuterRef("session")).order_by("-until")
        rows = (
            CompressionState.objects.filter(streak__gt=0, session__isnull=False)
            .select_related("session__chat__owner")
            .annotate(
                cause=Subquery(ended.values("reason")[:1]),
                cause_detail=Subquery(ended.values("detail")[:1]),
                model=Subquery(ended.values("model_name")[:1]),
                failed_at=Subquery(ended.values("finished_at")[:1]),
                cool_until=Subquery(until.values("until")[:1]),
                cool_since=Subquery(until.values("created_at")[:1]),
            )
            .order_by("-streak", "-pk")
        )
        picture.shared["streaks"] = list(rows[: SHOWN + 1])
    found: list[CompressionState] = picture.shared["streaks"]
    return found


def cooling(picture: Picture) -> dict[str, Any]:
    """Active cooldowns by kind, open breakers, pauses."""
    if "cooling" not in picture.shared:
        kinds = dict(
            Cooldown.objects.active()
            .order_by()
            .values("kind")
            .annotate(n=Count("pk"))
            .values_list("kind", "n")
        )
        told = CompressionState.objects.filter(NOTED).aggregate(
            streaking=Count("pk", filter=Q(streak__gt=0)),
            alarming=Count("pk", filter=Q(streak__gte=settings.HERMES_ALERT_STREAK)),
            longest=Max("streak"),
            provider=Count("pk", filter=Q(breaker_until__gt=picture.now)),
            session=Count("pk", filter=Q(ineffective__gte=BREAKER_AT) | Q(grew__gte=BREAKER_AT)),
            paused=Count("pk", filter=Q(paused_at__isnull=False)),
            paused_since=Min("paused_at"),
        )
        picture.shared["cooling"] = {"kinds": kinds, **told}
    found: dict[str, Any] = picture.shared["cooling"]
    return found


# --- Panels ---------------------------------------------------------------------------------------


def panels(picture: Picture) -> Iterator[Panel]:
    """Turns and their holds, attempts, the ratio, spending, streaks, cooldowns."""
    yield _turns(picture)
    yield _attempts(picture)
    yield _ratio(picture)
    yield _streaks(picture)
    yield _cooldowns(picture)


def _turns(picture: Picture) -> Panel:
    budget = settings.HERMES_TURN_HOLD_SECONDS
    counts = picture.counts("holds")
    bins = domain.hold_bins(counts, budget)
    total = sum(count for *_bounds, count in bins)
    median, high = domain.percentile(bins, 0.5), domain.percentile(bins, 0.95)
    now = turns.standing(picture)
    data = {
        "running": now["running"],
        "running_url": changelist("sessions_app.turn", "status__exact=running"),
        "held": standing(picture)["held"],
        "held_url": changelist(ATTEMPTS, "held=1"),
        "holds_url": changelist(ATTEMPTS, "was_held=1"),
        "p50": "" if median is None else f"{median:.1f}",
        "p95": "" if high is None or total < domain.LEAST else f"{high:.1f}",
        "total": total,
        "delayed": counts.get("over", 0),
        "delayed_url": changelist(ATTEMPTS, "over=1"),
        "budget": f"{budget:g}",
        "chart": charts.holds(counts, budget),
        "all_url": changelist("sessions_app.turn"),
    }
    return Panel("turns", "desk/parts/turns.html", 10, data)


def _attempts(picture: Picture) -> Panel:
    order = (
        ("failed", _("Failed"), "m-bad", "status__exact=failed"),
        ("lost", _("Lost"), "m-warn", "status__exact=lost"),
        ("ended", _("Superseded, cancelled"), "m-quiet", "status__in=superseded,cancelled"),
        ("adopted", _("Adopted late"), "hatch", "status__exact=committed&deferred=1"),
        ("committed", _("Committed"), "m-commit", "status__exact=committed&deferred=0"),
    )
    series = [
        charts.Series(label, paint, picture.bars("attempts", name))
        for name, label, paint, _query in order
    ]
    urls = [changelist(ATTEMPTS, query) for *_rest, query in order]
    chart = charts.stacked(picture.begins(), series, urls, step=picture.range.step)
    data = {"chart": chart, "all_url": changelist(ATTEMPTS), "open": standing(picture)["running"]}
    return Panel("attempts", "desk/parts/attempts.html", 20, data)


def _ratio(picture: Picture) -> Panel:
    counts = picture.counts("deferred")
    adopted, ended = counts.get("adopted", 0), counts.get("ended", 0)
    released = adopted + ended
    tokens = picture.totals.get("attempts", {})
    wasted = {name: tokens.get(name, 0) for name in ("failed", "lost", "ended")}
    spent = sum(tokens.values())
    lost = sum(wasted.values())
    data = {
        "adopted": adopted,
        "released": released,
        "percent": round(100 * adopted / released) if released else None,
        "ended": ended,
        "adopted_width": round(1000 * adopted / released, 1) if released else 0,
        "ended_width": round(1000 * ended / released, 1) if released else 0,
        "adopted_url": changelist(ATTEMPTS, "status__exact=committed&deferred=1"),
        "released_url": changelist(ATTEMPTS, "deferred=1"),
        "wasted": domain.amount(lost),
        "spent": domain.amount(spent),
        "share": f"{100 * lost / spent:.1f}" if spent else None,
        "wasted_url": changelist(ATTEMPTS, "spent_in_vain=1"),
        "parts": [
            (domain.amount(count), label)
            for name, label in (
                ("failed", _("failed")),
                ("lost", _("lost")),
                ("ended", _("superseded, cancelled")),
            )
            if (count := wasted[name])
        ],
    }
    return Panel("ratio", "desk/parts/ratio.html", 30, data)


def _streaks(picture: Picture) -> Panel:
    rows = []
    for state in streaks(picture)[:SHOWN]:
        until: datetime | None = state.cool_until  # type: ignore[attr-defined] # annotated
        since: datetime | None = state.cool_since  # type: ignore[attr-defined] # annotated
        left = None if until is None else (until - picture.now).total_seconds()
        share = 0
        if until is not None and since is not None and left is not None:
            share = round(100 * left / max(1.0, (until - since).total_seconds()))
        rows.append(
            {
                "state": state,
                "cause": _cause(state),
                "left": None if left is None else domain.duration(left),
                "until": until,
                "share": max(0, min(100, share)),
                "is_alarm": state.streak >= settings.HERMES_ALERT_STREAK,
            }
        )
    told = cooling(picture)
    data = {
        "rows": rows,
        "count": told["streaking"],
        "alarming": told["alarming"],
        "alarm": settings.HERMES_ALERT_STREAK,
        "all_url": changelist(STATES, "streak=1"),
        "act_url": changelist(STATES),
    }
    return Panel("streaks", "desk/parts/streaks.html", 40, data)


def _cause(state: Any) -> str:
    words = (state.cause or "").replace("_", " ")
    detail = (state.cause_detail or "").splitlines()
    more = detail[0][:120] if detail else ""
    told = f"{words}: {more}" if words and more else words or more
    return f"{told} ({state.model})" if state.model and told else told


def _cooldowns(picture: Picture) -> Panel:
    told = cooling(picture)
    kinds = told["kinds"]
    rows = [
        (
            _("After a failure"),
            _("ladder, up to an hour"),
            kinds.get(CooldownKind.LADDER, 0),
            changelist(COOLDOWNS, "active=1&kind__exact=ladder"),
        ),
        (
            _("After a held turn, a loss"),
            _("flat, about a minute"),
            kinds.get(CooldownKind.FLAT, 0),
            changelist(COOLDOWNS, "active=1&kind__exact=flat"),
        ),
        (
            _("Breakers open"),
            _("provider, or a session that does not shrink"),
            told["provider"] + told["session"],
            changelist(STATES, "breaker=1"),
        ),
        (_("Paused"), _("by an operator"), told["paused"], changelist(STATES, "paused=1")),
    ]
    data = {"rows": rows, "all_url": changelist(COOLDOWNS, "active=1")}
    return Panel("cooldowns", "desk/parts/cooldowns.html", 50, data)


# --- Needs ----------------------------------------------------------------------------------------


def needs(picture: Picture) -> Iterator[Need]:
    """Sessions that fail in a row, delayed turns, attempts that nobody claims, old pauses."""
    yield from _streak_need(picture)
    yield from _pause_need(picture)
    if over := picture.counts("holds").get("over", 0):
        yield Need(
            Level.BAD,
            ngettext(
                "%(n)d turn was delayed by compaction.",
                "%(n)d turns were delayed by compaction.",
                over,
            )
            % {"n": over},
            _("They waited longer than the budget of %(budget)s s.")
            % {"budget": f"{settings.HERMES_TURN_HOLD_SECONDS:g}"},
            [Link(_("Show them"), changelist(ATTEMPTS, "over=1"))],
        )
    age = standing(picture)["oldest_age"]
    if age is not None and age > turns.LATE:
        yield Need(
            Level.WARN,
            _("Compaction waits."),
            _("Its oldest attempt is %(age)s old and not begun. Turns go on without summaries.")
            % {"age": domain.duration(age)},
            [Link(_("Show the queue"), changelist(ATTEMPTS, "status__exact=queued"))],
        )


def _streak_need(picture: Picture) -> Iterator[Need]:
    rows = streaks(picture)
    if not rows:
        return
    long = [row for row in rows if row.streak >= settings.HERMES_ALERT_STREAK]
    causes: dict[str, int] = {}
    for row in rows:
        causes[_cause(row)] = causes.get(_cause(row), 0) + 1
    cause, shared = max(causes.items(), key=lambda item: item[1])
    lasting = _lasting(rows)
    if not long and shared < 5 and not lasting:
        return
    count = cooling(picture)["alarming"] or cooling(picture)["streaking"]
    last = max((row.failed_at for row in rows if row.failed_at), default=None)  # type: ignore[attr-defined] # annotated
    why = [
        _("Last cause: %(cause)s.") % {"cause": cause} if cause else "",
        _("Last failure %(age)s ago.")
        % {"age": domain.duration((picture.now - last).total_seconds())}
        if last
        else "",
        _("Turns run on; the contexts of these sessions are not shortened."),
    ]
    told = ngettext(
        "%(n)d session fails to be summarised, again and again.",
        "%(n)d sessions fail to be summarised, again and again.",
        count,
    )
    yield Need(
        Level.BAD,
        lasting or told % {"n": count},
        " ".join(part for part in why if part),
        [
            Link(_("Show the sessions"), changelist(STATES, "streak=1")),
            Link(
                _("Look at the models"),
                changelist("sessions_app.modelendpoint", "role__exact=summary"),
                is_primary=True,
            ),
        ],
    )


def _pause_need(picture: Picture) -> Iterator[Need]:
    since = cooling(picture)["paused_since"]
    seconds = 0.0 if since is None else (picture.now - since).total_seconds()
    if seconds > PAUSED_LONG:
        yield Need(
            Level.WARN,
            _("Compaction is paused."),
            _("For %(age)s by now. Where it is, contexts are not shortened.")
            % {"age": domain.duration(seconds)},
            [Link(_("Show the pauses"), changelist(STATES, "paused=1"))],
        )


def _lasting(rows: list[CompressionState]) -> str:
    """What is wrong with the model, where no try will mend it: told at the first failure."""
    told = {
        ErrorKind.AUTHENTICATION: _("The summary model refuses its key."),
        ErrorKind.PERMISSION: _("The key of the summary model may not use it."),
        ErrorKind.NOT_FOUND: _("There is no such summary model at its address."),
        ErrorKind.QUOTA: _("The account of the summary model is used up."),
        ErrorKind.BLOCKED: _("The address of the summary model is not allowed."),
    }
    kinds = [(row.cause_detail or "").partition(":")[0] for row in rows]  # type: ignore[attr-defined] # annotated
    return next((words for kind, words in told.items() if kind in kinds), "")


# --- Metrics --------------------------------------------------------------------------------------


def metrics() -> Iterator[Metric]:
    """Compaction now."""
    picture = Picture(db_now(), domain.RANGES["1h"])
    now, told = standing(picture), cooling(picture)
    yield Metric("hermes_turns_held", "Turns that wait for a summary now.", now["held"])
    for state in OPEN:
        yield Metric(
            "hermes_compaction_attempts_open",
            "Open attempts, by state.",
            now[state],
            {"state": state},
        )
    for kind in CooldownKind:
        yield Metric(
            "hermes_cooldowns_active",
            "Active cooldowns, by kind.",
            told["kinds"].get(kind, 0),
            {"kind": str(kind)},
        )
    yield Metric(
        "hermes_streak_longest", "Failed attempts in a row, the longest.", told["longest"] or 0
    )
    yield Metric("hermes_streak_sessions", "Sessions whose last attempt failed.", told["streaking"])
    yield Metric(
        "hermes_breakers_open",
        "Open breakers of sessions and providers.",
        told["provider"] + told["session"],
    )


SOURCE: Final = Source(
    "compaction",
    events=events,
    panels=panels,
    needs=needs,
    metrics=metrics,
    moments=moments,
    figures=("attempts", "attempt_reasons", "deferred", "holds"),
)
