"""The operators' pages."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from hermes.lib.db import db_now
from sessions_app import intake
from sessions_app.models import Session

from . import selectors, timeline
from .domain import RANGES
from .menu import menu

SEE: Final = "dashboard.view_desk"
SEE_TIMELINE: Final = "dashboard.view_timeline"
EXPORT: Final = "dashboard.export_timeline"
DEFAULT: Final = "24h"


def context_of(request: HttpRequest, **more: Any) -> dict[str, Any]:
    """What every page of the desk shows round its own parts."""
    chosen = RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT])
    zone = "local" if request.GET.get("tz") == "local" else "utc"
    return {
        "menu": menu(request),
        "ranges": RANGES.values(),
        "range": chosen,
        "zone": zone,
        "zone_name": timezone.get_current_timezone_name() if zone == "local" else "UTC",
        "version": settings.VERSION,
        "actor": request.user.get_username(),
        **more,
    }


def in_zone(zone: str) -> AbstractContextManager[None]:
    """Times are told in the person's own zone, or in UTC."""
    return nullcontext() if zone == "local" else timezone.override("UTC")


@require_safe
def dashboard(request: HttpRequest) -> HttpResponse:
    """Everything at a glance; who may not see it gets the plain index of the admin."""
    if not request.user.has_perm(SEE):
        index: HttpResponse | TemplateResponse = admin.site.index(request)
        return index
    context = context_of(request, page="dashboard")
    with in_zone(context["zone"]):
        context["desk"] = selectors.dashboard(context["range"])
        return render(request, "desk/dashboard.html", context)


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The parts of the dashboard that change, as they are now: the same templates."""
    if not request.user.has_perm(SEE):
        return HttpResponse(status=403)
    context = context_of(request)
    with in_zone(context["zone"]):
        context["desk"] = selectors.dashboard(context["range"])
        return render(request, "desk/parts/main.html", context)


# --- The timeline of a session --------------------------------------------------------------------


def _session(pk: int) -> Session:
    rows = Session.objects.select_related("chat__owner", "summary", "compression")
    return get_object_or_404(rows, pk=pk)


def _before(request: HttpRequest) -> datetime | None:
    try:
        told = datetime.fromisoformat(request.GET.get("before", ""))
    except ValueError:
        return None
    return told if told.tzinfo is not None else None


def _address(request: HttpRequest, **changed: str | None) -> str:
    """The query of this page with some of it changed; a new choice begins with the newest."""
    told = {name: request.GET[name] for name in ("tz", "kind", "order") if name in request.GET}
    told |= {name: value for name, value in changed.items() if value}
    for name, value in changed.items():
        if not value:
            told.pop(name, None)
    return "?" + urlencode(told)


@require_safe
def session(request: HttpRequest, pk: int) -> HttpResponse:
    """The timeline of a session, for whom it is permitted."""
    if not request.user.has_perm(SEE_TIMELINE):
        return HttpResponse(status=403)
    row = _session(pk)
    kinds = [kind for kind in request.GET.getlist("kind") if kind in timeline.KINDS]
    newest_first = request.GET.get("order") != "oldest"
    now = db_now()
    told = timeline.timeline(
        row, now, kinds=kinds, newest_first=newest_first, before=_before(request)
    )
    context = context_of(
        request,
        session=row,
        facts=timeline.facts(row),
        told=told,
        now=now,
        kinds=kinds,
        newest_first=newest_first,
        chips=[
            (kind, timeline.NAMES[kind], told.counts[kind], _address(request, kind=kind))
            for kind in timeline.KINDS
            if told.counts[kind]
        ],
        addresses={
            "all": _address(request, kind=None),
            "newest": _address(request, order=None),
            "oldest": _address(request, order="oldest"),
            "older": _address(request, before=told.before),
        },
        legend=timeline.LEGEND,
        page="sessions_app.session",
        may_export=request.user.has_perm(EXPORT),
    )
    with in_zone(context["zone"]):
        return render(request, "desk/timeline.html", context)


@require_POST
def export(request: HttpRequest, pk: int) -> HttpResponse:
    """The timeline as a file for a report of a fault; that it was taken is recorded."""
    if not request.user.has_perm(EXPORT):
        return HttpResponse(status=403)
    row = _session(pk)
    intake.record_operation(
        subject=f"session:{row.pk}",
        what="export",
        actor=request.user.get_username(),
        reason="timeline",
        session=row,
    )
    response = HttpResponse(
        timeline.bundle(row, db_now()), content_type="application/json; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="hermes-session-{row.pk}.json"'
    return response
