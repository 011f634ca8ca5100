"""Dropped completions: grouped by reason, tried out, and judged again as many as there are.

What is acted upon is a stored filter, not a list of ticks: a reason, and the time in which the rows
were settled. Its end is the moment of the dry run, so that what is dropped later is not in it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from hermes.lib.admin import ReasonForm
from hermes.lib.db import db_now
from processes_app import domain as news
from processes_app import intake, verdicts
from processes_app.domain import DropReason, EventStatus
from processes_app.models import CompletionEvent
from sessions_app.intake import record_operation

from . import domain, rollups, views
from .domain import Range
from .sources import processes
from .sources.base import changelist

SEE: Final = "processes_app.view_completionevent"
ACT: Final = "processes_app.redeliver_completion"
SHOWN: Final = 10  # rows of the open group
SECONDS: Final = 1.0  # for a dry run, and for each step of a redelivery
STEP: Final = 100  # events that are judged together
AT_ONCE = 1_000  # events of one step of a redelivery, at most
WHY: Final[Mapping[str, str | Promise]] = {
    DropReason.UNKNOWN_TYPE: gettext_lazy("This version does not know its kind"),
    DropReason.SESSION_DELETED: gettext_lazy(
        "By design: the session is gone, the output stays with the process"
    ),
    DropReason.OWNER_UNPROVEN: gettext_lazy("Nobody could prove whose it is"),
    DropReason.CLOSED_BY_USER: gettext_lazy(
        "By design: the person ended that session before the result came"
    ),
    DropReason.OWNER_INACTIVE: gettext_lazy("Its owner may not receive anything now"),
    DropReason.UNKNOWN_CHAT: gettext_lazy("No chat has this address"),
    DropReason.DISCARDED: gettext_lazy("By design: an operator discarded it"),
}


@dataclass(frozen=True)
class Stored:
    """The filter: dropped for this reason, settled in this time, behind this row."""

    reason: DropReason
    since: datetime
    until: datetime
    after: int = 0

    def rows(self) -> QuerySet[CompletionEvent]:
        """What is still dropped of it, in a steady order."""
        return CompletionEvent.objects.filter(
            status=EventStatus.DROPPED,
            reason=self.reason,
            settled_at__gte=self.since,
            settled_at__lte=self.until,
            pk__gt=self.after,
        ).order_by("pk")


@dataclass(frozen=True)
class DryRun:
    """What would come of it, without anything having been written."""

    at: datetime
    total: int  # rows of the filter
    tried: int
    good: int  # of those tried, that would not be dropped again
    told: Sequence[tuple[str, int]]  # the most frequent first

    @property
    def width(self) -> float:
        """The good ones in thousandths of those tried."""
        return round(1000 * self.good / self.tried, 1) if self.tried else 0.0


def dry_run(stored: Stored) -> DryRun:
    """Ask the judge about the rows of a filter, for about a second; most often about all."""
    began, found, good = time.monotonic(), Counter[str](), 0
    keys = list(stored.rows().values_list("pk", flat=True))
    tried = 0
    while tried < len(keys) and time.monotonic() - began < SECONDS:
        some = verdicts.foresee(keys[tried : tried + STEP])
        tried += STEP
        for verdict in some.values():
            found[news.in_words(verdict)] += 1
            good += not isinstance(verdict, news.Drop)
    return DryRun(stored.until, len(keys), min(tried, len(keys)), good, found.most_common())


@dataclass(frozen=True)
class Progress:
    """How far a redelivery has come."""

    done: int
    unchanged: int
    after: int
    left: int


def redeliver(stored: Stored, *, actor: str, why: str, seconds: float = SECONDS) -> Progress:
    """Have rows of a filter judged again for about so long; where to go on, and how many are left.

    A row that somebody else was faster with stays as it is, so going on twice does no harm.
    """
    began, done, unchanged, after = time.monotonic(), 0, 0, stored.after
    for pk in list(stored.rows().values_list("pk", flat=True)[:AT_ONCE]):
        if time.monotonic() - began > seconds:
            break
        if intake.redeliver(event_id=pk, actor=actor, why=why):
            done += 1
        else:
            unchanged += 1
        after = pk
    rest = Stored(stored.reason, stored.since, stored.until, after).rows()
    return Progress(done, unchanged, after, rest.count())


# --- The page -------------------------------------------------------------------------------------


def _groups(picture: Any, still: Mapping[str, tuple[int, datetime]]) -> list[dict[str, Any]]:
    """One group a reason that there is anything of: what hurts first, then the largest."""
    groups = []
    for reason in DropReason:
        group = processes.trend(picture, reason)
        count, last = still.get(reason, (0, None))
        if not count and not group["count"]:
            continue
        group |= {"why": WHY[reason], "still": count, "last": last}
        group["settled"] = max(0, group["count"] - count)
        groups.append(group)
    return sorted(groups, key=lambda each: (each["is_by_design"], -each["still"], each["reason"]))


def _told(groups: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The page in one sentence, and what stands under it."""
    whole = sum(each["still"] for each in groups)
    bad = [each for each in groups if each["still"] and not each["is_by_design"]]
    rest = _("No output is lost; each stays with its process.")
    if not whole:
        return _("Nothing is dropped any more."), rest
    if not bad:
        return _("All that was dropped was dropped by design."), rest
    lost = sum(each["still"] for each in bad)
    if len(bad) == 1:
        told = _("%(n)d of %(all)d drops have one cause: %(reason)s.") % {
            "n": lost,
            "all": whole,
            "reason": bad[0]["reason"],
        }
    else:
        told = _("%(n)d of %(all)d drops need a look, for %(reasons)d reasons.") % {
            "n": lost,
            "all": whole,
            "reasons": len(bad),
        }
    if whole > lost:
        more = ngettext(
            "The other one was dropped by design.",
            "The other %(n)d were dropped by design.",
            whole - lost,
        ) % {"n": whole - lost}
        return told, f"{more} {rest}"
    return told, rest


def _time(text: str) -> datetime:
    """A moment with its zone, in UTC.

    Raises:
        ValueError, OverflowError: it names none.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or not 2000 <= at.year < 9999:  # can be told in every zone
        raise ValueError(text)
    return at.astimezone(UTC)


def _stored(request: HttpRequest, chosen: Range, now: datetime) -> Stored | None:
    """The filter that a request names; None if it names none."""
    told = request.POST or request.GET
    if told.get("reason_code") not in set(DropReason):
        return None
    since, until = chosen.begin(now), now
    try:
        if told.get("since") and told.get("until"):
            since, until = (_time(told[name]) for name in ("since", "until"))
        after = max(0, int(told.get("after") or 0))
    except (ValueError, OverflowError):
        return None
    if after >= 2**63:
        return None
    return Stored(DropReason(told["reason_code"]), since, min(until, now), after)


@require_http_methods(["GET", "HEAD", "POST"])
def dropped(request: HttpRequest) -> HttpResponse:
    """The groups; of a chosen one its rows and a dry run; by POST a step of its redelivery."""
    if not request.user.has_perm(SEE):
        return HttpResponse(status=403)
    context = views.context_of(request, page="dropped", may=request.user.has_perm(ACT))
    now = db_now()
    stored = _stored(request, context["range"], now)
    form = ReasonForm(request.POST or None)
    progress = None
    if request.method == "POST":
        if not context["may"]:
            return HttpResponse(status=403)
        if stored is None:
            return HttpResponseRedirect(reverse("desk:dropped"))
        if form.is_valid():
            progress = _step(request, stored, form.cleaned_data["reason"])
    picture = rollups.picture(now, context["range"], ("completions", "drops"))
    still = processes.still_dropped(DropReason, context["range"].begin(now))
    groups = _groups(picture, still)
    first = next((each["reason"] for each in groups if each["still"]), None)
    chosen = stored.reason if stored else first
    told, more = _told(groups)
    context |= {
        "now": now,
        "groups": groups,
        "whole": sum(each["still"] for each in groups),
        "told": told,
        "more": more,
        "settled": picture.counts("completions"),
        "all_url": changelist(processes.COMPLETIONS, "status__exact=dropped"),
        "quiet_url": changelist(
            processes.COMPLETIONS, f"status__exact=dropped&reason__exact={chosen}"
        ),
        "delivered_url": changelist(processes.COMPLETIONS, "status__exact=delivered"),
        "chosen": chosen,
        "rows": _rows(chosen, context["range"].begin(now)) if chosen else [],
        "stored": stored,
        "form": form,
        "progress": progress,
        "done": _count(request, "done") + (progress.done if progress else 0),
        "unchanged": _count(request, "unchanged") + (progress.unchanged if progress else 0),
    }
    if stored is not None and progress is None:
        context["dry"] = dry_run(stored)
    with views.in_zone(context["zone"]):
        status = 400 if form.is_bound and progress is None else 200
        return render(request, "desk/dropped.html", context, status=status)


def _count(request: HttpRequest, name: str) -> int:
    told = request.POST.get(name, "")
    return int(told) if told.isdecimal() and len(told) < 10 else 0


def _rows(reason: str, since: datetime) -> list[tuple[CompletionEvent, str]]:
    """The latest of a reason, each with its age."""
    found = CompletionEvent.objects.filter(
        status=EventStatus.DROPPED, reason=reason, settled_at__gte=since
    )
    now = db_now()
    rows = found.defer("title", "body").select_related("process").order_by("-settled_at")
    return [(row, domain.duration((now - row.happened_at).total_seconds())) for row in rows[:SHOWN]]


def _step(request: HttpRequest, stored: Stored, why: str) -> Progress:
    actor = request.user.get_username()
    if not stored.after:  # once for the whole, beside the line of each
        record_operation(
            subject=f"dropped:{stored.reason}",
            what="redeliver",
            actor=actor,
            reason=why,
        )
    return redeliver(stored, actor=actor, why=why)
