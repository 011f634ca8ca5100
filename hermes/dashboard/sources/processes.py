"""Processes and completions: what runs, what came of its news, and what was dropped and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, Max, Min, Q
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from hermes.dashboard import domain
from hermes.dashboard.domain import Level
from hermes.lib.db import DbNow, db_now
from hermes.lib.redaction import redact
from processes_app.domain import (
    ALERTED,
    ApprovalStatus,
    DropReason,
    EventStatus,
    ProcessStatus,
)
from processes_app.models import ACTIVE, UNSETTLED, Approval, CompletionEvent, ProcessRecord
from sessions_app.models import History, Session

from .base import Event, Link, Metric, Moment, Need, Panel, Picture, Source, Span, changelist

PROCESSES: Final = "processes_app.processrecord"
COMPLETIONS: Final = "processes_app.completionevent"
BY_DESIGN: Final = {DropReason.CLOSED_BY_USER, DropReason.SESSION_DELETED, DropReason.DISCARDED}
SETTLED: Final = (
    EventStatus.DELIVERED,
    EventStatus.CONSUMED,
    EventStatus.QUIET,
    EventStatus.DROPPED,
)
SHOWN: Final = 5  # processes of the panel
MOST: Final = 200  # rows of each kind in a timeline
TONES: Final = {"delivered": "ok", "dropped": "bad"}


def events(span: Span) -> Iterator[Event]:
    """Completions that were settled and processes that ended, from the history.

    A drop is counted by the reason that its own line names, whatever was done with it afterwards.
    """
    rows = History.objects.filter(
        kind__in=["verdict", "process"],
        pk__gt=span.history_id,
        at__gte=span.start,
        at__lt=span.end,
    )
    for at, kind, frm, to, reason, actor in rows.values_list(
        "at", "kind", "frm", "to", "reason", "actor"
    ).iterator():
        if frm == to:
            continue
        if kind == "verdict" and to in SETTLED:
            yield Event(at, "completions", to)
            if to == EventStatus.DROPPED:
                yield Event(at, "drops", DropReason.DISCARDED if actor else reason)
        elif kind == "process" and to in {ProcessStatus.LOST, ProcessStatus.ENDED}:
            yield Event(at, "processes", to)


def standing() -> dict[str, Any]:
    """How many completions wait now: due, for later, held back, in a queued turn; the oldest."""
    pending, now = Q(status=EventStatus.PENDING), DbNow()
    found: dict[str, Any] = CompletionEvent.objects.filter(status__in=UNSETTLED).aggregate(
        pending=Count("pk", filter=pending),
        later=Count("pk", filter=pending & Q(due_at__gt=now)),
        held=Count("pk", filter=pending & ~Q(held="")),
        accepted=Count("pk", filter=Q(status=EventStatus.ACCEPTED)),
        oldest=Min("happened_at", filter=pending),
        oldest_due=Min("due_at", filter=pending & Q(due_at__lte=now)),
    )
    return found


def still_dropped(reasons: Iterable[str], since: datetime) -> dict[str, tuple[int, datetime]]:
    """By reason, how many are dropped to this day that were dropped since, and when the last was.

    What was redelivered or shown as a quiet row in the meantime is not among them.
    """
    rows = CompletionEvent.objects.filter(
        status=EventStatus.DROPPED, reason__in=list(reasons), settled_at__gte=since
    )
    found = rows.order_by().values_list("reason").annotate(n=Count("pk"), last=Max("settled_at"))
    return {reason: (count, last) for reason, count, last in found}


def trend(picture: Picture, reason: DropReason) -> dict[str, Any]:
    """One reason: how many in the range, and its bars, each in percent of the largest."""
    bars = picture.bars("drops", reason)
    most = max(bars, default=0)
    return {
        "reason": reason,
        "is_by_design": reason in BY_DESIGN,
        "is_alarm": reason in ALERTED,
        "count": sum(bars),
        "most": most,
        "width": len(bars) * 10,
        "paint": "m-quiet" if reason in BY_DESIGN else "m-bad",
        "bars": [
            (n * 10 + 1, round(100 - 100 * count / most, 1), round(100 * count / most, 1))
            for n, count in enumerate(bars)
            if count
        ],
        "url": changelist(COMPLETIONS, f"status__exact=dropped&reason__exact={reason}"),
    }


def panels(picture: Picture) -> Iterator[Panel]:
    """Completions by what became of them, dropped ones by reason, what runs."""
    counts, now = picture.counts("completions"), standing()
    age = None if now["oldest"] is None else (picture.now - now["oldest"]).total_seconds()
    rows: list[tuple[str, str, int, str]] = [
        (
            _("Pending"),
            "" if age is None else _("oldest %(age)s") % {"age": domain.duration(age)},
            now["pending"],
            "status__exact=pending",
        ),
        (
            _("Retrying"),
            _("%(n)d held back") % {"n": now["held"]} if now["held"] else _("due again later"),
            now["later"],
            "due=held" if now["held"] else "status__exact=pending",
        ),
        (_("In a queued turn"), "", now["accepted"], "status__exact=accepted"),
        *(
            (label, more, counts.get(status, 0), f"status__exact={status}")
            for status, label, more in (
                (EventStatus.DELIVERED, _("Delivered"), ""),
                (EventStatus.CONSUMED, _("Consumed"), _("the agent waited for it")),
                (EventStatus.QUIET, _("Quiet row"), _("no turn")),
                (EventStatus.DROPPED, _("Dropped"), ""),
            )
        ),
    ]
    yield Panel(
        "completions",
        "desk/parts/completions.html",
        52,
        {
            "rows": [
                (label, more, count, changelist(COMPLETIONS, query))
                for label, more, count, query in rows
            ],
            "all_url": changelist(COMPLETIONS),
        },
    )
    dropped = [trend(picture, reason) for reason in DropReason]
    yield Panel(
        "dropped",
        "desk/parts/dropped.html",
        54,
        {"rows": dropped, "total": sum(row["count"] for row in dropped)},
    )
    active = ProcessRecord.objects.filter(status__in=ACTIVE)
    total = active.count()
    running = active.defer("tail", "imported").order_by("pk")[:SHOWN]
    yield Panel(
        "processes",
        "desk/parts/processes.html",
        56,
        {
            "rows": [
                (row, domain.duration((picture.now - _began(row)).total_seconds()))
                for row in running
            ],
            "total": total,
            "lost": picture.counts("processes").get(ProcessStatus.LOST, 0),
            "all_url": changelist(PROCESSES, "now=active"),
            "lost_url": changelist(PROCESSES, "status__exact=lost"),
        },
    )


def _began(row: ProcessRecord) -> datetime:
    return row.started_at or row.created_at


def needs(picture: Picture) -> Iterator[Need]:
    """News that is lost to somebody, until it is redelivered or shown."""
    drops = [reason for reason in picture.counts("drops") if reason not in BY_DESIGN]
    still = still_dropped(drops, picture.range.begin(picture.now)) if drops else {}
    lost = sum(count for count, _last in still.values())
    if lost:
        names = ", ".join(f"{reason} {n}" for reason, (n, _last) in sorted(still.items()))
        yield Need(
            Level.BAD,
            ngettext(
                "%(n)d result did not reach its session.",
                "%(n)d results did not reach their sessions.",
                lost,
            )
            % {"n": lost},
            _("Dropped in this time: %(names)s.") % {"names": names},
            [Link(_("Review and redeliver"), reverse("desk:dropped"), is_primary=True)],
        )


def metrics() -> Iterator[Metric]:
    """Processes and completions now."""
    now, told = db_now(), standing()
    for name, state in (("pending", "pending"), ("later", "retrying"), ("accepted", "accepted")):
        yield Metric(
            "hermes_completions",
            "Completions that are not settled, by state; retrying ones are pending too.",
            told[name],
            {"state": state},
        )
    oldest = told["oldest_due"]
    age = 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
    yield Metric(
        "hermes_oldest_due_completion_seconds",
        "How long the oldest due completion has been due; 0 where none is.",
        age,
    )
    running = ProcessRecord.objects.filter(status__in=ACTIVE).count()
    yield Metric("hermes_background_processes", "Processes that may have a child.", running)


# --- The timeline of a session --------------------------------------------------------------------


def moments(session: Session) -> Iterator[Moment]:
    """Processes that the session started, approvals of them, and every verdict on their news."""
    processes = ProcessRecord.objects.filter(origin_session=session.key)
    for row in processes.defer("command", "tail", "imported").order_by("-pk")[:MOST]:
        yield _process(row)
    for approval in Approval.objects.filter(origin_session=session.key).order_by("-pk")[:MOST]:
        yield _approval(approval)
    found = CompletionEvent.objects.filter(origin_session=session.key)
    events = list(found.defer("title", "body").select_related("process").order_by("-pk")[:MOST])
    for event in events:
        whose = event.process.uid if event.process else event.child_session
        yield Moment(
            at=event.happened_at,
            kind="completion",
            title=_("Completion %(pk)s of %(whose)s: due") % {"pk": event.pk, "whose": whose},
            facts=[_("now %(status)s") % {"status": event.status}],
            subject=f"completion:{event.pk}",
            order=1,
        )
    rows = History.objects.filter(
        kind="verdict", subject__in=[f"completion:{event.pk}" for event in events]
    )
    for line in rows.order_by("-pk")[: 2 * MOST]:
        # The words of an operator are shown on the page, and left out of the export by their kind.
        yield Moment(
            at=line.at,
            kind="operator" if line.actor else "completion",
            title=_("Completion %(pk)s: %(frm)s → %(to)s")
            % {"pk": line.subject.partition(":")[2], "frm": line.frm, "to": line.to},
            facts=[redact(line.reason)] if line.reason else [],
            tone="op" if line.actor else TONES.get(line.to, ""),
            side=line.actor,
            subject=line.subject,
            order=2,
        )


def _process(row: ProcessRecord) -> Moment:
    is_bad = row.status in {ProcessStatus.LOST, ProcessStatus.FAILED_START}
    failed = row.exit_code not in {None, 0}
    bar = "m-quiet"
    if row.is_active:
        bar = "m-info"
    elif is_bad or failed:
        bar = "m-bad" if is_bad else "m-warn"
    return Moment(
        at=_began(row),
        until=row.ended_at,
        kind="process",
        title=_("Process %(uid)s: %(outcome)s") % {"uid": row.uid, "outcome": row.outcome},
        facts=[part for part in (row.reason, row.sandbox) if part],
        tone="bad" if is_bad else "warn" if failed else "",
        side="" if row.seconds is None else domain.duration(row.seconds),
        subject=f"process:{row.pk}",
        bar=bar,
    )


def _approval(row: Approval) -> Moment:
    waited = None if row.answered_at is None else (row.answered_at - row.created_at).total_seconds()
    return Moment(
        at=row.created_at,
        until=row.answered_at,
        kind="process",
        title=_("Approval %(pk)s: %(status)s") % {"pk": row.pk, "status": row.status},
        facts=[
            part
            for part in (
                row.answer,
                _("asked after foreign text") if row.is_steered else "",
                _("taken back") if row.revoked_at else "",
            )
            if part
        ],
        tone="warn" if row.status in {ApprovalStatus.DENIED, ApprovalStatus.EXPIRED} else "",
        side="" if waited is None else domain.duration(waited),
        subject=f"approval:{row.pk}",
        bar="m-info" if waited is None else "m-quiet",
    )


SOURCE: Final = Source(
    "processes",
    events=events,
    panels=panels,
    needs=needs,
    metrics=metrics,
    moments=moments,
    figures=("completions", "drops", "processes"),
)
