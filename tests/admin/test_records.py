"""What is written by a form: with the password, recorded with before and after, never a secret."""

from __future__ import annotations

import json
import time

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from hermes.dashboard import admin as desk
from hermes.dashboard import roles
from hermes.dashboard.models import Alert, AlertChannel, Heartbeat, LoginFailure, Silence
from hermes.lib import reauth
from hermes.lib.db import db_now
from sessions_app import intake
from sessions_app.models import History, ModelEndpoint
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(client):
    """A superuser who has just signed in."""
    user = factories.person("root", is_staff=True, is_superuser=True)
    client.force_login(user)
    return user


@pytest.fixture
def stale(client, root):
    """The same, whose password was shown long ago."""
    session = client.session
    session[reauth.KEY] = int(time.time()) - reauth.FRESH - 1
    session.save()
    return root


def endpoint() -> ModelEndpoint:
    return intake.register_endpoint(
        name="one",
        base_url="http://127.0.0.1:9/v1",
        api_key="sk-first-secret-1",
        model="m",
        window=8_000,
        role="chat",
    )


def form_of(row: ModelEndpoint, **changed: object) -> dict[str, object]:
    names = ("name", "kind", "role", "base_url", "model", "window", "priority")
    return {**{name: getattr(row, name) for name in names}, "is_enabled": "on", **changed}


def line(what: str) -> History:
    return History.objects.get(kind="operator", to=what)


class TestHistory:
    def test_an_endpoint_with_before_and_after_and_without_its_key(self, client, root):
        row = endpoint()
        data = form_of(row, model="n", api_key="sk-other-secret-2")
        url = f"/admin/sessions_app/modelendpoint/{row.pk}/change/"
        assert client.post(url, data).status_code == 302
        told = line("change")
        assert (told.subject, told.actor) == (f"modelendpoint:{row.pk}", "root")
        assert told.data == {
            "before": {"model": "m"},
            "after": {"model": "n"},
            "changed": ["api_key"],
        }
        assert "secret" not in json.dumps(list(History.objects.values()), default=str)

    def test_nothing_changed_is_no_line(self, client, root):
        row = endpoint()
        url = f"/admin/sessions_app/modelendpoint/{row.pk}/change/"
        assert client.post(url, form_of(row)).status_code == 302
        assert not History.objects.filter(kind="operator").exists()

    @pytest.mark.parametrize("way", ["page", "list"])
    def test_a_deleted_row_is_told(self, client, root, way):
        row = AlertChannel.objects.create(name="mail", address="a@example.org")
        url = "/admin/dashboard/alertchannel/"
        if way == "page":
            answer = client.post(f"{url}{row.pk}/delete/", {"post": "yes"})
        else:
            data = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
            answer = client.post(url, data)
        assert answer.status_code == 302
        assert not AlertChannel.objects.exists()
        assert line("delete").subject == f"alertchannel:{row.pk}"
        assert line("delete").data["before"]["name"] == "mail"
        assert "example.org" not in json.dumps(line("delete").data)

    def test_rights_and_passwords_of_people(self, client, root):
        person = factories.person("maren")
        roles.grant(apps)
        group = Group.objects.get(name="Auditor")
        at = person.date_joined
        data = {
            "username": "maren",
            "is_active": "on",
            "is_staff": "on",
            "groups": [group.pk],
            "date_joined_0": f"{at:%Y-%m-%d}",
            "date_joined_1": f"{at:%H:%M:%S}",
        }
        url = f"/admin/auth/user/{person.pk}/"
        assert client.post(f"{url}change/", data).status_code == 302
        told = line("change").data
        assert told["before"]["is_staff"] is False
        assert told["after"] == {"is_staff": True, "groups": ["Auditor"]}

        word = "Plover-sedge-4711"
        data = {"usable_password": "true", "password1": word, "password2": word}
        assert client.post(f"{url}password/", data).status_code == 302
        last = History.objects.filter(kind="operator").last()
        assert (last.subject, last.data["changed"]) == (f"user:{person.pk}", ["password"])
        assert word not in json.dumps(list(History.objects.values()), default=str)


class TestPassword:
    def test_it_is_asked_for_before_a_new_one_is_given(self, client, stale):
        word = "Plover-sedge-4711"
        data = {"usable_password": "true", "password1": word, "password2": word}
        answer = client.post(f"/admin/auth/user/{stale.pk}/password/", data)
        assert answer.url.startswith("/admin/desk/confirm/")
        stale.refresh_from_db()
        assert stale.check_password("pass")

    @pytest.mark.parametrize("page", ["auth/user/add/", "auth/group/add/"])
    def test_it_is_asked_for_before_rights_are_given(self, client, stale, page):
        assert client.get(f"/admin/{page}").url.startswith("/admin/desk/confirm/")

    def test_it_is_asked_for_before_a_key_goes(self, client, stale):
        row = endpoint()
        url = "/admin/sessions_app/modelendpoint/"
        one = client.post(f"{url}{row.pk}/delete/", {"post": "yes"})
        data = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
        many = client.post(url, data)
        for answer in (one, many):
            assert answer.url.startswith("/admin/desk/confirm/")
        assert ModelEndpoint.objects.filter(pk=row.pk).exists()


class TestOneTransaction:
    """What cannot be recorded is not done."""

    @pytest.fixture
    def _broken(self, monkeypatch):
        def fail(**_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(intake, "record_operation", fail)

    @pytest.mark.usefixtures("_broken")
    def test_rows_of_the_desk_stay(self):
        past = db_now() - desk.GONE * 2
        beat = Heartbeat.objects.create(owner="h|b|1|1", kind="beat", host="h", seen_at=past)
        failure = LoginFailure.objects.create(name="n", address="a")
        alert = Alert.objects.create(rule="broker")
        for act, row in ((desk._forget, beat), (desk._unlock, failure), (desk._silence, alert)):
            with pytest.raises(RuntimeError):
                act(row, "op", "a long enough reason")
        assert Heartbeat.objects.exists()
        assert LoginFailure.objects.exists()
        assert not Silence.objects.exists()
