"""Roles: what each may see and do, and nothing more."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from hermes.dashboard import roles
from sessions_app.models import History, Message
from tests import factories, states

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _roles(db):
    roles.grant(apps)  # as the migration does; a test that empties the tables takes them away


def somebody(role: str):
    person = factories.person(is_staff=True)
    person.groups.add(Group.objects.get(name=role))
    return person


def codes(role: str) -> set[str]:
    return set(Group.objects.get(name=role).permissions.values_list("codename", flat=True))


def test_they_differ_in_what_they_may_do():
    acts = {"trigger_compaction", "cancel_compaction", "clear_cooldown", "pause_compaction"}
    assert acts <= codes("Operator")
    assert {code for code in codes("Auditor") if not code.startswith("view_")} == set()
    assert {"kill_process", "redeliver_completion", "discard_completion"} <= codes("Operator")
    assert {"read_transcript", "read_log"} & (codes("Operator") | codes("Auditor")) == set()
    assert {code for code in codes("Support") if not code.startswith("view_")} == {
        "read_transcript",
        "read_log",
    }


@pytest.mark.parametrize(("role", "sees"), [("Operator", 200), ("Auditor", 200), ("Support", 403)])
def test_who_sees_the_dashboard(client, role, sees):
    client.force_login(somebody(role))
    assert client.get("/admin/desk/live/").status_code == sees
    assert client.get("/admin/").status_code == 200


def test_support_reads_what_was_said_and_leaves_a_trace(client):
    state = states.fresh()
    message = Message.objects.filter(session__chat=state.chat).first()
    person = somebody("Support")
    client.force_login(person)
    page = client.get(f"/admin/sessions_app/message/{message.pk}/change/")
    assert b"hello" in page.content
    assert History.objects.get(kind="read").actor == person.username
    assert client.get("/admin/compression_app/cooldown/").status_code == 403


def test_an_auditor_sees_the_row_and_not_the_text(client):
    state = states.fresh()
    message = Message.objects.filter(session__chat=state.chat).first()
    client.force_login(somebody("Auditor"))
    page = client.get(f"/admin/sessions_app/message/{message.pk}/change/")
    assert page.status_code == 200
    assert b"hello" not in page.content


def test_what_was_taken_from_a_role_stays_taken_where_only_others_are_granted():
    group = Group.objects.get(name="Operator")
    group.permissions.remove(*group.permissions.filter(codename="pause_compaction"))
    roles.grant(apps, only=("sessions_app",))
    assert "pause_compaction" not in codes("Operator")
