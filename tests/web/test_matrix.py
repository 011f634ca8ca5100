"""Who may open what: every address, for every kind of person. An address without a row fails.

Pages of chats are in ``test_pages``, by owner; here they are rows as well, so that none is missing.
"""

from __future__ import annotations

import re

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from hermes.dashboard import roles, watching
from hermes.dashboard import routing as of_the_desk
from hermes.lib.viewers import viewer_of
from hermes.web import requests
from hermes.web import routing as of_chats
from processes_app.models import ProcessRecord
from sessions_app.models import Chat, Session
from tests import factories, states
from tests.processes import facts

pytestmark = pytest.mark.django_db

PERSONAS = ("nobody", "person", "staff", "support", "auditor", "operator", "superuser")
OPEN = (200,) * 7
# 302 is the way to the page for signing in. The columns are the personas, in their order.
STAFF_ONLY = (302, 302, 200, 200, 200, 200, 200)
PAGES: dict[str, tuple[int, ...]] = {
    "login/": (200, *(302,) * 6),
    "healthz": OPEN,
    "readyz": OPEN,
    "metrics": (404,) * 7,  # from elsewhere
    "": (302, *(302,) * 6),
    "sidebar/": (302, *(200,) * 6),
    "admin/": STAFF_ONLY,
    "admin/login/": (302, 403, *(302,) * 5),
    "admin/desk/live/": (302, 302, 403, 403, 200, 200, 200),
    "login/code/": (302,) * 7,
    "admin/desk/confirm/": STAFF_ONLY,
    "admin/desk/second-factor/": STAFF_ONLY,
    "admin/desk/dropped/": (302, 302, 403, 200, 200, 200, 200),
    "admin/desk/sessions/<int:pk>/": (302, 302, 403, 200, 200, 200, 200),
    "admin/desk/sessions/<int:pk>/export/": (302, 302, 405, 405, 405, 405, 405),
}
# Chats of somebody else do not exist, whoever asks; those that only take POST say so first.
CHATS = {
    "chats/<uuid:uid>/": 404,
    "chats/<uuid:uid>/older/": 404,
    "chats/<uuid:uid>/versions/<int:rewind>/": 404,
    "chats/<uuid:uid>/summaries/<int:pk>/": 404,
    "chats/<uuid:uid>/results/<int:pk>/": 404,
    "processes/<slug:uid>/": 404,
    "chats/<uuid:uid>/fold/": 404,
    "chats/<uuid:uid>/text/": 404,
    "chats/<uuid:uid>/rename/": 405,
    "chats/<uuid:uid>/pin/": 405,
    "chats/<uuid:uid>/archive/": 405,
    "chats/<uuid:uid>/delete/": 405,
    "chats/<uuid:uid>/undelete/": 405,
    "chats/<uuid:uid>/model/": 405,
    "chats/new/": 405,
    "logout/": 405,
}
# By model, who may look at the list beside superusers; nobody else.
LISTS = {
    "sessions_app.chat": {"support", "auditor", "operator"},
    "sessions_app.session": {"support", "auditor", "operator"},
    "sessions_app.turn": {"support", "auditor", "operator"},
    "sessions_app.message": {"support", "auditor", "operator"},
    "sessions_app.rewind": {"support", "auditor", "operator"},
    "sessions_app.summary": {"support", "auditor", "operator"},
    "sessions_app.history": {"auditor", "operator"},
    "sessions_app.modelendpoint": {"auditor", "operator"},
    "compression_app.compactionattempt": {"auditor", "operator"},
    "compression_app.cooldown": {"auditor", "operator"},
    "compression_app.compressionstate": {"auditor", "operator"},
    "processes_app.processrecord": {"support", "auditor", "operator"},
    "processes_app.completionevent": {"support", "auditor", "operator"},
    "processes_app.approval": {"support", "auditor", "operator"},
    "dashboard.heartbeat": {"auditor", "operator"},
    "dashboard.checkresult": {"auditor", "operator"},
    "dashboard.alert": {"auditor", "operator"},
    "dashboard.alertnotice": {"auditor", "operator"},
    "dashboard.alertchannel": {"auditor", "operator"},
    "dashboard.silence": {"auditor", "operator"},
    "dashboard.loginfailure": {"auditor", "operator"},
    "dashboard.secondfactor": {"auditor", "operator"},
    "auth.user": {"auditor", "operator"},
    "auth.group": {"auditor"},
}
# What the admin brings along below each model, and beside them.
OF_A_MODEL = re.compile(
    r"^admin/(\w+)/(\w+)/(add/|<path:object_id>/(history|delete|change)/|<path:object_id>/|)$"
    r"|^admin/auth/user/<id>/password/$"
)
OF_THE_ADMIN = re.compile(
    r"^admin/(logout|password_change|password_change/done|autocomplete|jsi18n|search|r/.*"
    r"|toggle-sidebar|\^.*)/?$|^admin/\(.*|^admin/.*\(\?P<url>.*"
)


def addresses(patterns=None, prefix: str = "") -> list[str]:
    """Every address that Hermes answers, as it is written."""
    found = []
    for each in get_resolver().url_patterns if patterns is None else patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            found += addresses(each.url_patterns, path)
        elif isinstance(each, URLPattern):
            found.append(path)
    return found


def test_every_address_has_a_row():
    unknown = []
    for path in addresses():
        model = OF_A_MODEL.match(path)
        if model and model[1] and f"{model[1]}.{model[2]}" in LISTS:
            continue
        if path in PAGES or path in CHATS or OF_THE_ADMIN.match(path):
            continue
        if model and not model[1]:
            continue
        unknown.append(path)
    assert unknown == []


def test_every_list_has_a_row_and_the_reverse():
    assert {model._meta.label_lower for model in admin.site._registry} == set(LISTS)


@pytest.fixture
def personas() -> dict[str, Client]:
    roles.grant(apps)
    made = {"nobody": Client()}
    for name in PERSONAS[1:]:
        person = factories.person(
            f"the-{name}", is_staff=name != "person", is_superuser=name == "superuser"
        )
        if name.title() in roles.ROLES:
            person.groups.add(Group.objects.get(name=name.title()))
        made[name] = Client()
        made[name].force_login(person)
    return made


def filled(path: str, chat: Chat) -> str:
    session = Session.objects.get(chat=chat)
    process = ProcessRecord.objects.filter(origin_chat=chat.key).first()
    for told, value in (
        ("<slug:uid>", process.uid if process else ""),
        ("<uuid:uid>", chat.uid),
        ("<int:pk>", session.pk),
        ("<int:rewind>", 1),
    ):
        path = path.replace(told, str(value))
    return f"/{path}"


def test_pages(personas):
    chat = states.fresh().chat
    cells, wrong = 0, []
    for path, expected in PAGES.items():
        for name, status in zip(PERSONAS, expected, strict=True):
            got = personas[name].get(filled(path, chat), REMOTE_ADDR="203.0.113.9").status_code
            cells += 1
            if got != status:
                wrong.append((path, name, status, got))
    print(f"matrix: {cells} cells of pages")
    assert wrong == []


SOCKETS = {
    # Who is let in; the door of each chat is that of its owner, whom no persona is.
    r"^ws/desk/$": (False, False, False, False, True, True, True),
    r"^ws/chats/(?P<uid>[^/]{1,64})/$": (False,) * 7,
}


def test_every_socket_has_a_row():
    served = [*of_chats.sockets, *of_the_desk.sockets]
    assert {each.pattern.regex.pattern for each in served} == set(SOCKETS)


def test_sockets(personas):
    chat = states.fresh().chat
    cells, wrong = 0, []
    for name in PERSONAS:
        login = personas[name].cookies.get("sessionid")
        viewer = viewer_of(login.value if login else "")
        is_let_in = {
            r"^ws/desk/$": viewer is not None
            and viewer.user_id in watching.permitted({viewer.user_id}),
            r"^ws/chats/(?P<uid>[^/]{1,64})/$": viewer is not None
            and requests.find_chat(viewer, str(chat.uid)) is not None,
        }
        for place, expected in SOCKETS.items():
            cells += 1
            if is_let_in[place] != expected[PERSONAS.index(name)]:
                wrong.append((place, name, is_let_in[place]))
    print(f"matrix: {cells} cells of sockets")
    assert wrong == []


def test_chats_of_others(personas):
    chat = facts.ended().chat
    cells, wrong = 0, []
    for path, status in CHATS.items():
        for name in PERSONAS:
            got = personas[name].get(filled(path, chat)).status_code
            cells += 1
            if got != (302 if name == "nobody" and path != "logout/" else status):
                wrong.append((path, name, status, got))
    for path in CHATS:
        if "<uuid" in path and CHATS[path] == 405:
            for name in PERSONAS:
                got = personas[name].post(filled(path, chat), {"endpoint": "1"}).status_code
                cells += 1
                if got != (302 if name == "nobody" else 404):
                    wrong.append((path, name, "POST", got))
    print(f"matrix: {cells} cells of chats")
    assert wrong == []


def test_lists(personas):
    states.fresh()
    cells, wrong = 0, []
    for label, allowed in LISTS.items():
        app, _dot, model = label.partition(".")
        for name in PERSONAS:
            got = personas[name].get(f"/admin/{app}/{model}/").status_code
            status = (
                302
                if name in {"nobody", "person"}
                else 200
                if name in allowed or name == "superuser"
                else 403
            )
            cells += 1
            if got != status:
                wrong.append((label, name, status, got))
    print(f"matrix: {cells} cells of lists")
    assert wrong == []


def operations() -> list[tuple[str, str, str]]:
    """Every operation of every list, with the permission that it needs."""
    return [
        (model._meta.label_lower, operation.name, operation.permission)
        for model, shown in admin.site._registry.items()
        for operation in getattr(shown, "operations", ())
    ]


def test_operations_are_for_whom_they_are_permitted(personas):
    cells, wrong = 0, []
    for label, name, permission in operations():
        app, _dot, model = label.partition(".")
        code = permission.partition(".")[2]
        assert Permission.objects.filter(codename=code).exists(), permission
        for persona in PERSONAS[1:]:
            person = get_user_model().objects.get(username=f"the-{persona}")
            page = personas[persona].get(f"/admin/{app}/{model}/")
            offered = page.status_code == 200 and name in dict(
                page.context["action_form"].fields["action"].choices
                if page.context.get("action_form")
                else {}
            )
            cells += 1
            if offered and not person.has_perm(permission):
                wrong.append((label, name, persona))
    print(f"matrix: {cells} cells of operations")
    assert cells > 50
    assert wrong == []


OF_PROCESSES = ("kill", "redeliver", "show", "discard", "revoke")


def test_who_acts_on_processes_and_who_reads_their_output(personas):
    state = facts.ended()
    found = {name: permission for _label, name, permission in operations()}
    page = f"/admin/processes_app/processrecord/{state.process.pk}/change/"
    for persona in ("support", "auditor", "operator"):
        person = get_user_model().objects.get(username=f"the-{persona}")
        may = {name for name in OF_PROCESSES if person.has_perm(found[name])}
        assert may == (set(OF_PROCESSES) if persona == "operator" else set())
        shown = b"echo done" in personas[persona].get(page).content
        assert shown is (persona == "support")


def test_nobody_below_superuser_and_operator_may_act():
    roles.grant(apps)
    acting = {permission.partition(".")[2] for *_rest, permission in operations()}
    for name in ("Auditor", "Support"):
        codes = set(Group.objects.get(name=name).permissions.values_list("codename", flat=True))
        assert codes & acting == set()
