"""The second factor: set up, asked for, each code once; required of staff where it is."""

from __future__ import annotations

import re
import time

import pytest
from django.contrib.auth import SESSION_KEY
from django.core.management import call_command
from django.test import Client

from hermes.dashboard import factors, logins
from hermes.dashboard.models import SecondFactor
from hermes.lib import reauth, totp, vault
from sessions_app.models import History
from tests import factories

pytestmark = pytest.mark.django_db
SETUP = "/admin/desk/second-factor/"


@pytest.fixture
def maren(client):
    person = factories.person("maren", is_staff=True, is_superuser=True)
    client.force_login(person)
    return person


def code_of(person, steps: int = 0) -> str:
    row = SecondFactor.objects.get(user=person)
    return totp.code(vault.unseal(row.sealed_secret), int(time.time()) // totp.STEP + steps)


def set_up(client, person) -> list[str]:
    """Set an app up as a person does; the codes for paper."""
    client.get(SETUP)
    page = client.post(SETUP, {"code": code_of(person, -1)}).content.decode()
    return re.findall(r"<li><code>(\w+)</code>", page)


def password(person="maren", **more) -> tuple[Client, object]:
    """Somebody who has shown a password, and the answer."""
    other = Client()
    data = {"username": person, "password": "pass"}
    return other, other.post("/login/?next=/admin/", data, **more)


def is_in(client) -> bool:
    return SESSION_KEY in client.session


def test_setting_it_up_shows_the_secret_once_and_gives_codes_for_paper(client, maren):
    page = client.get(SETUP).content.decode()
    secret = vault.unseal(SecondFactor.objects.get().sealed_secret)
    assert totp.grouped(secret) in page
    assert "otpauth://totp/Hermes:maren?secret=" in page
    assert secret not in SecondFactor.objects.get().sealed_secret
    wrong = client.post(SETUP, {"code": "000000"})
    assert b"The code is not right" in wrong.content
    codes = set_up(client, maren)
    assert len(set(codes)) == factors.RECOVERY
    assert totp.grouped(secret).encode() not in client.get(SETUP).content
    assert not set(codes) & set(SecondFactor.objects.get().recovery)
    assert History.objects.get(to="second_factor").actor == "maren"


class TestSigningIn:
    @pytest.fixture(autouse=True)
    def _set_up(self, client, maren):
        self.person = maren
        self.codes = set_up(client, maren)

    def test_the_password_alone_is_not_enough(self):
        other, answer = password()
        assert answer.url == "/login/code/"
        assert not is_in(other)
        assert other.get("/admin/").status_code == 302
        assert other.get("/login/code/").status_code == 200

    def test_with_the_code(self):
        other, _answer = password()
        done = other.post("/login/code/", {"code": code_of(self.person)})
        assert (done.url, is_in(other)) == ("/admin/", True)

    def test_a_code_counts_once(self):
        code = code_of(self.person)
        for expected in (True, False):
            other, _answer = password()
            other.post("/login/code/", {"code": code})
            assert is_in(other) is expected

    def test_a_code_on_paper_counts_once(self):
        for expected in (True, False):
            other, _answer = password()
            other.post("/login/code/", {"code": f" {self.codes[0].upper()} "})
            assert is_in(other) is expected
        assert len(SecondFactor.objects.get().recovery) == factors.RECOVERY - 1

    def test_codes_are_tried_only_so_often(self):
        other, _answer = password()
        for _ in range(logins.EACH):
            other.post("/login/code/", {"code": "000000"})
        answer = other.post("/login/code/", {"code": code_of(self.person)})
        assert (answer.status_code, is_in(other)) == (429, False)

    def test_many_addresses_try_no_more_of_them(self):
        answers = []
        for n in range(logins.EVERYWHERE + 1):
            other, _answer = password()
            answer = other.post(
                "/login/code/", {"code": "000000"}, REMOTE_ADDR=f"203.0.113.{n + 1}"
            )
            answers.append(answer.status_code)
        assert answers == [200] * logins.EVERYWHERE + [429]

    def test_the_password_does_not_count_for_long(self, monkeypatch):
        other, _answer = password()
        monkeypatch.setattr("hermes.dashboard.views.PENDING_SECONDS", 0)
        assert other.get("/login/code/").url == "/login/"

    def test_who_was_switched_off_meanwhile_is_out(self):
        other, _answer = password()
        type(self.person).objects.update(is_active=False)
        assert other.post("/login/code/", {"code": code_of(self.person)}).url == "/login/"

    def test_a_password_that_was_changed_meanwhile_counts_no_more(self):
        other, _answer = password()
        self.person.set_password("another word")
        self.person.save(update_fields=["password"])
        assert other.post("/login/code/", {"code": code_of(self.person)}).url == "/login/"
        assert not is_in(other)

    def test_without_a_password_there_is_no_code_to_show(self):
        assert Client().get("/login/code/").url == "/login/"


class TestRequired:
    @pytest.fixture(autouse=True)
    def _required(self, settings):
        settings.HERMES_SECOND_FACTOR_REQUIRED = True

    @pytest.mark.parametrize("page", ["/admin/", "/admin/sessions_app/turn/", "/admin/desk/live/"])
    def test_staff_set_it_up_before_anything_else(self, client, maren, page):
        assert client.get(page).url == SETUP
        assert client.get("/").status_code == 302  # to a chat, as ever
        set_up(client, maren)
        assert client.get(page).status_code == 200

    def test_people_who_are_no_staff_need_none(self, client):
        client.force_login(factories.person())
        assert client.get("/sidebar/").status_code == 200


def test_it_is_not_required_on_ones_own_machine(client, maren):
    assert client.get("/admin/").status_code == 200


def test_setting_it_up_and_taking_it_away_need_a_fresh_password(client, maren):
    set_up(client, maren)
    session = client.session
    session[reauth.KEY] = int(time.time()) - reauth.FRESH - 1
    session.save()
    assert client.post(SETUP, {"what": "forget"}).url.startswith("/admin/desk/confirm/")
    assert factors.of(maren.pk) is not None
    client.post("/admin/desk/confirm/", {"password": "pass", "next": SETUP})
    client.post(SETUP, {"what": "forget"})
    assert factors.of(maren.pk) is None


def test_an_operator_takes_it_away_from_somebody_who_lost_the_phone(client, maren):
    set_up(client, maren)
    row = SecondFactor.objects.get()
    page = client.get(f"/admin/dashboard/secondfactor/{row.pk}/change/").content
    assert vault.unseal(row.sealed_secret).encode() not in page
    data = {
        "action": "forget_factor",
        "_selected_action": [row.pk],
        "reason": "The phone fell into the sea.",
    }
    client.post("/admin/dashboard/secondfactor/", data)
    assert not SecondFactor.objects.exists()
    assert History.objects.get(to="forget_factor").reason.startswith("The phone")


def test_keys_that_are_rotated_take_it_along(client, maren, settings):
    codes = set_up(client, maren)
    old = settings.HERMES_SECRET_KEYS
    settings.HERMES_SECRET_KEYS = ["k" * 50, *old]
    before = SecondFactor.objects.get().sealed_secret
    call_command("rotate_keys")
    settings.HERMES_SECRET_KEYS = ["k" * 50]
    assert SecondFactor.objects.get().sealed_secret != before
    assert factors.check(SecondFactor.objects.get(), code_of(maren))
    assert codes
