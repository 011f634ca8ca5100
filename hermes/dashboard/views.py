"""The operators' pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import authenticate, get_user_model, login
from django.contrib.auth.views import LoginView
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from hermes.lib import reauth, totp
from hermes.lib.db import db_now
from sessions_app import intake
from sessions_app.models import Session

from . import factors, logins, selectors, timeline
from .domain import RANGES
from .menu import menu
from .watching import SEE

SEE_TIMELINE: Final = "dashboard.view_timeline"
EXPORT: Final = "dashboard.export_timeline"
DEFAULT: Final = "24h"
PENDING: Final = "signing_in"  # who has shown the password and not yet the code
PENDING_SECONDS: Final = 300


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
        index: TemplateResponse = admin.site.index(request)
        index.is_plain_index = True  # type: ignore[attr-defined] # told to the headers
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


# --- The password again ---------------------------------------------------------------------------


def confirm(request: HttpRequest) -> HttpResponse:
    """Ask for the password before what it protects; from there back to where somebody was."""
    back = request.POST.get("next") or request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = reverse("desk:dashboard")
    name = request.user.get_username()
    fault = ""
    if request.method == "POST":
        person = authenticate(request, username=name, password=request.POST.get("password", ""))
        if person is not None and person.pk == request.user.pk:
            reauth.mark(request)
            logins.forget(request, name)
            return HttpResponseRedirect(back)
        seconds = logins.wait(request, name)
        fault = (
            _("Too many tries. Again in %(n)d minutes.") % {"n": max(1, round(seconds / 60))}
            if seconds
            else _("The password is not right.")
        )
    context = context_of(request, next=back, fault=fault)
    return render(request, "desk/confirm.html", context, status=403 if fault else 200)


# --- Signing in -----------------------------------------------------------------------------------


class SignIn(LoginView):
    """The one page on which people sign in; it says so where a name has been tried too often."""

    template_name = "web/login.html"
    redirect_authenticated_user = True
    extra_context = {"version": settings.VERSION}

    def form_valid(self, form: Any) -> HttpResponse:
        """Signed in, or one step further: to the code of the person's app."""
        person = form.get_user()
        if factors.of(person.pk) is None:
            response: HttpResponse = super().form_valid(form)
            return response
        self.request.session.flush()
        told = [person.pk, int(time.time()), self.get_success_url(), person.get_session_auth_hash()]
        self.request.session[PENDING] = told
        return HttpResponseRedirect(reverse("login-code"))

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        """The form, and the minutes to wait where there are any."""
        context: dict[str, Any] = super().get_context_data(**more)
        seconds = 0
        if self.request.method == "POST":
            seconds = logins.wait(self.request, self.request.POST.get("username", ""))
        return {**context, "wait_minutes": -(-seconds // 60)}

    def form_invalid(self, form: Any) -> HttpResponse:
        """The page again; 429 while the name is locked there."""
        response: HttpResponse = super().form_invalid(form)
        if logins.wait(self.request, self.request.POST.get("username", "")):
            response.status_code = 429
        return response


@require_safe
def to_sign_in(request: HttpRequest) -> HttpResponse:
    """The admin has no page of its own for signing in; who is signed in and no staff is refused."""
    if request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied
    told = request.GET.get("next", "")
    query = urlencode({"next": told or reverse("desk:dashboard")})
    return HttpResponseRedirect(f"{reverse('login')}?{query}")


def sign_in_code(request: HttpRequest) -> HttpResponse:
    """The second step of signing in: the code of the person's app, tried only so often."""
    pending: Sequence[Any] = request.session.get(PENDING) or (0, 0, "/", "")
    person = None
    if 0 <= time.time() - pending[1] < PENDING_SECONDS:
        person = get_user_model().objects.filter(pk=pending[0], is_active=True).first()
    if person is not None and pending[-1] != person.get_session_auth_hash():
        person = None  # the password that was shown is not theirs any more
    row = None if person is None else factors.of(person.pk)
    if person is None or row is None:
        return HttpResponseRedirect(reverse("login"))
    name, fault, status = f"code of {person.pk}", "", 200
    if request.method == "POST":
        if logins.wait(request, name) or logins.is_worn(name):
            fault, status = _("Too many tries. Try again in some minutes."), 429
        elif factors.check(row, request.POST.get("code", "")):
            logins.forget(request, name)
            login(request, person, backend=settings.AUTHENTICATION_BACKENDS[0])
            return HttpResponseRedirect(pending[2])
        else:
            logins.note_failure(request, name)
            fault = _("The code is not right, or was used already.")
    context = {"version": settings.VERSION, "fault": fault}
    return render(request, "web/code.html", context, status=status)


def second_factor(request: HttpRequest) -> HttpResponse:
    """Set up an authenticator app, or take it away; the password was shown a moment ago."""
    if not reauth.is_fresh(request):
        return reauth.ask(request)
    person = request.user
    assert person.pk is not None  # noqa: S101 - the admin lets nobody else in
    name, codes, fault = person.get_username(), [], ""
    if request.method == "POST" and request.POST.get("what") == "forget":
        factors.forget(person.pk, actor=name, reason="by themselves")
        return HttpResponseRedirect(reverse("desk:second-factor"))
    if request.method == "POST":
        codes = factors.confirm(person.pk, request.POST.get("code", ""), actor=name)
        fault = "" if codes else _("The code is not right. Does the clock of the phone go right?")
    row = factors.of(person.pk)
    secret = "" if row is not None else factors.begin(person.pk)
    context = context_of(
        request,
        row=row,
        codes=codes,
        fault=fault,
        secret=totp.grouped(secret),
        address=totp.address(secret, name=name, issuer="Hermes") if secret else "",
        left=len(row.recovery) if row is not None else 0,
        is_required=settings.HERMES_SECOND_FACTOR_REQUIRED,
    )
    return render(request, "desk/factor.html", context)
