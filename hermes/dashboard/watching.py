"""What sockets of the dashboard read: who may look, and the parts of the page as they are now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from typing import Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, Value
from django.template.loader import render_to_string
from django.utils import timezone

from hermes.lib.db import retrying

from . import selectors
from .domain import RANGES
from .models import SecondFactor

SEE: Final = "dashboard.view_desk"
# What the forms of the dashboard need; without it they are not drawn.
ACTS: Final = ("compression_app.trigger_compaction", "compression_app.clear_cooldown")
ZONES: Final = ("utc", "local")
# Stands where a form needs a token. Parts are shared, and a token is not: a page puts its own in.
TOKEN: Final = "of-the-page"  # noqa: S105
BESIDE: Final = {name: f"desk/parts/{name}.html" for name in ("now", "verdict", "health")}


@dataclass(frozen=True)
class View:
    """What decides how the dashboard looks; all who look at the same share one picture."""

    range: str
    zone: str  # one of ZONES
    own: ZoneInfo | None = None  # the zone that is meant by local; None is UTC
    may: frozenset[str] = frozenset()  # those of ACTS


@dataclass(frozen=True)
class Part:
    """A part of the page, and a mark that differs as soon as it does."""

    html: str
    mark: bytes


@retrying
def permitted(people: Collection[int]) -> dict[int, frozenset[str]]:
    """Which of ``ACTS`` each may do; whoever may not see the dashboard is missing. One query.

    As for the page: they are active, staff, and have a second factor where one is required.
    """
    users = get_user_model().objects
    asked = [
        users.with_perm(name)
        .filter(_has_factor(), pk__in=people, is_staff=True)
        .order_by()
        .values_list("pk", Value(name))
        for name in (SEE, *ACTS)
    ]
    found: dict[int, set[str]] = {}
    for pk, name in reduce(lambda one, other: one.union(other), asked):
        found.setdefault(pk, set()).add(name)
    return {pk: frozenset(names - {SEE}) for pk, names in found.items() if SEE in names}


def _has_factor() -> Q:
    if not settings.HERMES_SECOND_FACTOR_REQUIRED:
        return Q()
    return Q(pk__in=SecondFactor.objects.filter(confirmed_at__isnull=False).values("user"))


@retrying
def pictures(views: Collection[View]) -> dict[View, dict[str, Part]]:
    """The parts of each view by name; what a range and a zone have in common is looked at once."""
    alike: dict[View, list[View]] = {}
    for view in views:
        alike.setdefault(replace(view, may=frozenset()), []).append(view)
    made: dict[View, dict[str, Part]] = {}
    for common, same in alike.items():
        with timezone.override(common.own or "UTC"):
            desk = selectors.dashboard(RANGES[common.range])
            for view in same:
                made[view] = _parts(view, desk)
    return made


def _parts(view: View, desk: selectors.Dashboard) -> dict[str, Part]:
    context = {
        "desk": desk,
        "range": RANGES[view.range],
        "zone": view.zone,
        "perms": _nested(view.may),
        "csrf_token": TOKEN,
    }
    told = {name: render_to_string(template, context) for name, template in BESIDE.items()}
    for panel in desk.panels:
        told[panel.name] = render_to_string(panel.template, {**context, "p": panel.data})
    return {name: Part(html, sha256(html.encode()).digest()) for name, html in told.items()}


def _nested(names: Collection[str]) -> Mapping[str, Mapping[str, bool]]:
    """Permissions as templates ask for them: by application, then by name."""
    found: dict[str, dict[str, bool]] = {}
    for name in names:
        app, _dot, code = name.partition(".")
        found.setdefault(app, {})[code] = True
    return found
