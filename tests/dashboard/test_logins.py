"""Signing in: so many tries, in the same time, and nobody is locked out from elsewhere."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Permission

from hermes.dashboard import logins, sweeps
from hermes.dashboard.models import AlertChannel, LoginFailure
from hermes.lib import reauth
from hermes.lib.db import DbNow
from sessions_app.models import History, ModelEndpoint
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def maren():
    return factories.person("maren", is_staff=True, is_superuser=True)


def sign_in(client, name="maren", password="wrong", address="203.0.113.7", **more):
    data = {"username": name, "password": password}
    return client.post("/login/", data, REMOTE_ADDR=address, **more)


def is_in(client) -> bool:
    return SESSION_KEY in client.session


class TestLock:
    @pytest.fixture(autouse=True)
    def quick(self, settings, maren):
        """What a try costs is asked below."""
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        maren.set_password("pass")
        maren.save()

    def test_the_sixth_try_is_refused_even_with_the_right_password(self, client, maren):
        for _ in range(logins.EACH):
            answer = sign_in(client)
        assert answer.status_code == 429
        answer = sign_in(client, password="pass")
        assert (answer.status_code, is_in(client)) == (429, False)
        assert b"Too many tries from here. Again in 5 minutes." in answer.content

    def test_four_wrong_ones_and_a_right_one(self, client, maren):
        for _ in range(logins.EACH - 1):
            assert sign_in(client).status_code == 200
        sign_in(client, password="pass")
        assert is_in(client)
        assert not LoginFailure.objects.exists()

    def test_nobody_can_lock_somebody_out_from_elsewhere(self, client, maren):
        for _ in range(20):
            sign_in(client, address="198.51.100.66")
        sign_in(client, password="pass", address="203.0.113.7")
        assert is_in(client)

    def test_it_is_over_after_five_minutes(self, client, maren):
        for _ in range(logins.EACH):
            sign_in(client)
        LoginFailure.objects.update(at=DbNow() - logins.WINDOW - timedelta(seconds=1))
        sign_in(client, password="pass")
        assert is_in(client)

    def test_tries_while_it_is_locked_make_it_no_longer(self, client, maren):
        for _ in range(logins.EACH + 5):
            sign_in(client)
        assert LoginFailure.objects.count() == logins.EACH

    def test_a_name_that_nobody_has_is_treated_alike(self, client, maren):
        answers = {
            name: [sign_in(client, name=name).status_code for _ in range(logins.EACH + 1)]
            for name in ("maren", "nobody")
        }
        assert answers["maren"] == answers["nobody"] == [200] * (logins.EACH - 1) + [429] * 2

    def test_one_address_may_not_try_every_name(self, client, maren, monkeypatch):
        monkeypatch.setattr(logins, "ADDRESS", 3)
        for number in range(3):
            sign_in(client, name=f"name{number}")
        assert sign_in(client, password="pass").status_code == 429

    def test_names_are_not_kept(self, client, maren):
        sign_in(client, name="my-password-by-mistake")
        row = LoginFailure.objects.get()
        assert "mistake" not in row.name

    def test_old_ones_are_forgotten(self, client, maren):
        sign_in(client)
        LoginFailure.objects.update(at=DbNow() - timedelta(days=2))
        sweeps.sweep(force=True)
        assert not LoginFailure.objects.exists()

    def test_an_operator_unlocks(self, client, operator, maren):
        from django.test import Client

        other = Client()
        for _ in range(logins.EACH):
            sign_in(other)
        row = LoginFailure.objects.first()
        data = {
            "action": "unlock",
            "_selected_action": [row.pk],
            "reason": "She called, it is her.",
        }
        client.post("/admin/dashboard/loginfailure/", data)
        assert LoginFailure.objects.exists()
        operator.user_permissions.add(Permission.objects.get(codename="unlock_login"))
        client.post("/admin/dashboard/loginfailure/", data)
        assert History.objects.get(to="unlock").actor == "operator"
        sign_in(other, password="pass")
        assert is_in(other)


def test_a_refusal_takes_as_long_whoever_it_is(client, maren, monkeypatch):
    """Unknown, disabled, wrong and locked: the medians lie close together."""
    monkeypatch.setattr(logins, "ADDRESS", 10_000)
    factories.person("gone", is_active=False)
    for _ in range(logins.EACH):
        sign_in(client, address="192.0.2.1")

    def took(number: int, name: str, address: str) -> float:
        began = time.thread_time()  # of this thread alone: the machine may be busy
        sign_in(client, name=name, address=address)
        return time.thread_time() - began

    times = {"maren": [], "gone": [], "nobody": [], "locked": []}
    for number in range(5):
        for name in ("maren", "gone", "nobody"):
            times[name].append(took(number, name, f"198.51.100.{number}"))
        times["locked"].append(took(number, "maren", "192.0.2.1"))
    medians = {name: statistics.median(each) for name, each in times.items()}
    print("login:", {name: f"{1000 * each:.0f} ms" for name, each in medians.items()})

    assert max(medians.values()) < 1.3 * min(medians.values())


class TestOneWayIn:
    def test_the_admin_has_no_other_page(self, client):
        answer = client.get("/admin/login/?next=/admin/sessions_app/turn/")
        assert answer.url == "/login/?next=%2Fadmin%2Fsessions_app%2Fturn%2F"
        assert client.post("/admin/login/", {"username": "a", "password": "b"}).status_code == 405

    def test_who_is_no_staff_is_refused_and_not_sent_round(self, client):
        client.force_login(factories.person())
        answer = client.get("/admin/", follow=True)
        assert answer.status_code == 403

    def test_nobody_is_led_away(self, client, maren):
        for target in ("https://evil.example/", "//evil.example/", "/\\evil.example"):
            answer = sign_in(client, password="pass", QUERY_STRING=f"next={target}")
            assert answer.url == "/"
            client.logout()

    def test_a_login_of_staff_ends_the_same_day(self, client, maren):
        sign_in(client, password="pass")
        assert client.session.get_expiry_age() <= 8 * 3600


class TestPasswordAgain:
    @pytest.fixture(autouse=True)
    def _long_ago(self, client, maren):
        sign_in(client, password="pass")
        session = client.session
        session[reauth.KEY] = int(time.time()) - reauth.FRESH - 1
        session.save()

    @pytest.mark.parametrize("page", ["sessions_app/modelendpoint", "dashboard/alertchannel"])
    def test_keys_are_touched_only_with_it(self, client, page):
        url = f"/admin/{page}/add/"
        asked = client.get(url)
        assert asked.url.startswith("/admin/desk/confirm/?next=")
        client.post(url, {"name": "x", "kind": "offline", "role": "chat", "window": "8000"})
        assert not ModelEndpoint.objects.filter(name="x").exists()
        assert not AlertChannel.objects.exists()
        assert client.get(f"/admin/{page}/").status_code == 200  # looking needs none

        wrong = client.post("/admin/desk/confirm/", {"password": "no", "next": url})
        assert wrong.status_code == 403
        assert client.get(url).status_code == 302
        right = client.post("/admin/desk/confirm/", {"password": "pass", "next": url})
        assert right.url == url
        assert client.get(url).status_code == 200

    def test_it_is_tried_only_so_often(self, client):
        for _ in range(logins.EACH):
            client.post("/admin/desk/confirm/", {"password": "no"}, REMOTE_ADDR="203.0.113.7")
        answer = client.post(
            "/admin/desk/confirm/", {"password": "pass"}, REMOTE_ADDR="203.0.113.7"
        )
        assert b"Too many tries" in answer.content

    def test_it_leads_nowhere_else(self, client):
        data = {"password": "pass", "next": "https://evil.example/"}
        assert client.post("/admin/desk/confirm/", data).url == "/admin/"

    def test_a_fresh_one_is_enough(self, client, maren):
        client.logout()
        sign_in(client, password="pass")
        assert client.get("/admin/sessions_app/modelendpoint/add/").status_code == 200
