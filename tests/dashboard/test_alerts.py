"""Alerts: each is caused once; told once, again while it lasts, and when it is over."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.core import mail

from hermes.dashboard import alerts, metrics, sweeps
from hermes.dashboard.models import Alert, AlertChannel, AlertNotice, Silence
from hermes.dashboard.sources import Metric
from hermes.lib import vault
from hermes.lib.db import db_now
from sessions_app.models import History

from .conftest import gone, up_to_now
from .test_metrics import (
    _broken,
    _dropped,
    _dropped_unknown,
    _dropped_unproven,
    _failed,
    _process_lost,
    _swept_long_ago,
    _turn_delayed,
    _turn_queued,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def channel():
    return AlertChannel.objects.create(name="us", kind="email", address="us@example.org")


def firing() -> set[str]:
    return set(Alert.objects.filter(cleared_at=None, is_firing=True).values_list("rule", flat=True))


# --- Each is caused -------------------------------------------------------------------------------


def _worker_gone() -> None:
    gone("worker", "background")


@pytest.mark.usefixtures("alive")
@pytest.mark.parametrize(
    ("cause", "rule"),
    [
        (_failed, "streak"),
        (_turn_queued, "queued_age"),
        (_worker_gone, "process_missing"),
        (_swept_long_ago, "sweep_late"),
        (_broken, "invariants"),
        (_turn_delayed, "turns_delayed"),
        (_failed, "tokens_wasted"),
    ],
)
def test_it_fires(settings, cause, rule):
    settings.HERMES_ALERT_WASTED_TOKENS = 999
    up_to_now()
    alerts.evaluate()
    assert rule not in firing()
    cause()
    up_to_now()
    alerts.evaluate()
    Alert.objects.update(since=db_now() - timedelta(minutes=1))
    alerts.evaluate()

    assert rule in firing()


@pytest.mark.usefixtures("alive")
def test_a_broker_that_is_away(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1"
    alerts.evaluate()
    assert firing() == set()  # not before it lasts
    Alert.objects.update(since=db_now() - timedelta(minutes=1))
    alerts.evaluate()
    assert firing() == {"broker"}


@pytest.mark.usefixtures("alive", "allow_errors")
@pytest.mark.parametrize(
    ("cause", "rule"),
    [
        (_dropped_unproven, "dropped_unproven"),
        (_dropped_unknown, "dropped_unknown"),
        (_process_lost, "processes_lost"),
    ],
)
def test_what_is_lost_of_processes_fires(cause, rule):
    up_to_now()
    alerts.evaluate()
    assert firing() == set()
    cause()
    up_to_now()
    alerts.evaluate()
    assert firing() == {rule}


@pytest.mark.usefixtures("alive")
def test_what_is_dropped_by_design_is_no_alarm():
    _dropped()
    up_to_now()
    alerts.evaluate()
    assert firing() == set()


def test_what_was_dropped_by_design_fires_nothing():
    alerts.evaluate(
        numbers=[
            Metric("hermes_completions_dropped_last_hour", "", 9, {"reason": "closed_by_user"})
        ]
    )
    assert not Alert.objects.exists()


def test_every_rule_has_a_test_that_causes_it():
    from pathlib import Path

    text = Path(__file__).read_text(encoding="utf-8")
    assert [rule.name for rule in alerts.rules() if f'"{rule.name}"' not in text] == []


# --- Told -----------------------------------------------------------------------------------------

STREAK = [Metric("hermes_streak_longest", "", 5)]
WELL = [Metric("hermes_streak_longest", "", 0)]


def notices() -> list[str]:
    return list(AlertNotice.objects.order_by("pk").values_list("what", flat=True))


def test_it_is_told_once_and_again_when_it_is_over(channel):
    now = db_now()
    for seconds in range(0, 60, 15):
        alerts.evaluate(now + timedelta(seconds=seconds), STREAK)
    assert notices() == ["fired"]
    alerts.evaluate(now + timedelta(seconds=75), WELL)
    alerts.evaluate(now + timedelta(seconds=90), WELL)
    assert notices() == ["fired", "cleared"]
    row = Alert.objects.get()
    assert (row.worst, row.cleared_at) == (5, now + timedelta(seconds=75))


def test_one_that_lasts_is_told_again_after_hours(channel):
    now = db_now()
    alerts.evaluate(now, STREAK)
    alerts.evaluate(now + timedelta(hours=3), STREAK)
    alerts.evaluate(now + timedelta(hours=5), STREAK)
    assert notices() == ["fired", "still"]


def test_one_that_comes_and_goes_is_not_told_each_time(channel):
    now = db_now()
    for minute in range(6):
        alerts.evaluate(now + timedelta(minutes=minute), STREAK if minute % 2 == 0 else WELL)
    assert notices() == ["fired", "cleared"]
    assert Alert.objects.count() == 3


def test_a_channel_gets_so_many_an_hour_and_no_more(channel, monkeypatch):
    monkeypatch.setattr(alerts, "A_CHANNEL", 2)
    for number in range(4):
        alerts.evaluate(numbers=[Metric("hermes_invariant_violations", "", 1, {"n": str(number)})])
    assert AlertNotice.objects.filter(what="fired").count() == 2


def test_one_that_nobody_could_be_told_of_is_told_as_soon_as_somebody_can(monkeypatch):
    now, bad = db_now(), [Metric("hermes_streak_longest", "", 9)]
    assert alerts.evaluate(now, bad) == 0
    us = AlertChannel.objects.create(name="us", kind="email", address="us@example.org")
    monkeypatch.setattr(alerts, "A_CHANNEL", 0)
    assert alerts.evaluate(now, bad) == 0
    monkeypatch.setattr(alerts, "A_CHANNEL", 1)
    assert alerts.evaluate(now, bad) == 1
    assert us.notices.get().what == "fired"


def test_a_notice_that_is_being_sent_is_due_for_nobody_else(channel, monkeypatch):
    begun = db_now() - timedelta(minutes=2)  # the ones before it took so long
    alerts.evaluate(begun, [Metric("hermes_streak_longest", "", 9)])
    seen = []

    def send(notice):
        seen.append(AlertNotice.objects.get().due_at - db_now())
        return "sent"

    monkeypatch.setattr(alerts, "_send", send)
    assert alerts.deliver(begun) == 1
    assert seen[0] > timedelta(seconds=20)


def test_slow_ones_leave_the_rest_to_the_next_sweep(channel, monkeypatch):
    AlertChannel.objects.create(name="them", kind="email", address="them@example.org")
    alerts.evaluate(db_now(), [Metric("hermes_streak_longest", "", 9)])
    monkeypatch.setattr(alerts, "SECONDS", 0.0)
    monkeypatch.setattr(alerts, "_send", lambda notice: time.sleep(0.01) or "sent")
    sent = [alerts.deliver() for _ in range(3)]
    assert max(sent) <= 1  # none is taken after the time is over


def test_only_bad_ones_where_that_is_wanted(channel):
    AlertChannel.objects.update(only_bad=True)
    alerts.evaluate(numbers=[Metric("hermes_compaction_tokens_wasted_last_hour", "", 10**9)])
    assert notices() == []


def test_a_silent_rule_tells_nobody(client, operator, channel):
    alerts.evaluate(numbers=STREAK)
    AlertNotice.objects.all().delete()
    alert = Alert.objects.get()
    data = {
        "action": "silence",
        "_selected_action": [alert.pk],
        "reason": "We know, the key comes tomorrow.",
    }
    client.post("/admin/dashboard/alert/", data)
    assert not Silence.objects.exists()  # not permitted
    operator.user_permissions.add(Permission.objects.get(codename="silence_alert"))
    client.post("/admin/dashboard/alert/", data)
    assert Silence.objects.get().actor == "operator"
    assert History.objects.get(to="silence").reason.startswith("We know")
    alerts.evaluate(db_now() + timedelta(hours=5), STREAK)
    assert notices() == []


# --- Sent -----------------------------------------------------------------------------------------


def test_by_mail(channel, settings):
    alerts.evaluate(numbers=STREAK)
    assert alerts.deliver() == 1
    assert alerts.deliver() == 0
    (sent,) = mail.outbox
    assert sent.to == ["us@example.org"]
    assert sent.subject == "[Hermes] Summaries of a session fail again and again."
    assert "Value: 5" in sent.body
    assert AlertNotice.objects.get().sent_at is not None


def test_without_a_mail_server_it_says_so_and_gives_up_in_the_end(channel, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    now = db_now()
    alerts.evaluate(now, numbers=STREAK)
    for _try in range(alerts.TRIES + 2):
        now += timedelta(hours=1)
        assert alerts.deliver(now) == 0
    row = AlertNotice.objects.get()
    assert (row.tries, row.sent_at) == (alerts.TRIES, None)
    assert row.given_up_at is not None
    assert "HERMES_MAIL_URL" in row.detail


class Hook(http.server.BaseHTTPRequestHandler):
    """Keeps what it was sent; answers what it is told to."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


@pytest.fixture
def hook():
    server = socketserver.TCPServer(("127.0.0.1", 0), Hook)
    server.got, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    AlertChannel.objects.create(
        name="hook",
        kind="webhook",
        address=f"http://127.0.0.1:{server.server_address[1]}/in",
        sealed_key=vault.seal("t0ken"),
    )
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


class TestWebhook:
    def test_it_is_sent_with_its_token(self, hook, settings):
        settings.HERMES_ALLOW_LOOPBACK_MODELS = True
        alerts.evaluate(numbers=STREAK)
        assert alerts.deliver() == 1
        ((path, headers, told),) = hook.got
        assert path == "/in"
        assert headers["Authorization"] == "Bearer t0ken"
        assert (told["rule"], told["what"], told["value"]) == ("streak", "fired", 5.0)

    def test_one_that_refuses_is_asked_again_later(self, hook, settings):
        settings.HERMES_ALLOW_LOOPBACK_MODELS = True
        hook.status = 503
        now = db_now()
        alerts.evaluate(now, numbers=STREAK)
        assert alerts.deliver(now) == 0
        assert alerts.deliver(now + timedelta(seconds=1)) == 0
        hook.status = 200
        assert alerts.deliver(now + timedelta(minutes=2)) == 1
        assert len(hook.got) == 2

    @pytest.mark.parametrize("address", ["http://169.254.169.254/x", "http://127.0.0.1:{port}/in"])
    def test_nothing_is_sent_where_nothing_may_be(self, hook, settings, address):
        settings.HERMES_ALLOW_LOOPBACK_MODELS = False
        port = hook.server_address[1]
        AlertChannel.objects.update(address=address.format(port=port))
        alerts.evaluate(numbers=STREAK)
        assert alerts.deliver() == 0
        assert hook.got == []
        assert "BadAddress" in AlertNotice.objects.get().detail

    def test_a_token_stays_only_with_its_address(self, client, operator, hook, settings):
        settings.HERMES_ALLOW_LOOPBACK_MODELS = True
        operator.is_superuser = True
        operator.save()
        row = AlertChannel.objects.get()
        url = f"/admin/dashboard/alertchannel/{row.pk}/change/"
        data = {"name": "hook", "kind": "webhook", "address": row.address, "is_enabled": "on"}
        assert b"t0ken" not in client.get(url).content
        client.post(url, data)
        assert vault.unseal(AlertChannel.objects.get().sealed_key) == "t0ken"
        client.post(url, {**data, "address": "http://127.0.0.1:1/other"})
        assert AlertChannel.objects.get().sealed_key == ""

    def test_an_address_that_is_not_reached_is_refused_where_it_is_entered(
        self, client, operator, settings
    ):
        operator.is_superuser = True
        operator.save()
        data = {"name": "x", "kind": "webhook", "address": "http://169.254.169.254/", "key": ""}
        page = client.post("/admin/dashboard/alertchannel/add/", data)
        assert page.context["adminform"].form.errors["address"]
        data |= {"kind": "email", "address": "a@b.org, nobody"}
        page = client.post("/admin/dashboard/alertchannel/add/", data)
        assert page.context["adminform"].form.errors["address"]


@pytest.mark.usefixtures("alive")
def test_the_sweep_evaluates_and_sends(channel):
    _broken()
    sweeps.sweep(force=True)
    assert [sent.subject for sent in mail.outbox] == ["[Hermes] Rows break their invariants."]


@pytest.mark.parametrize(
    "page", ["alert", "alertchannel", "alertnotice", "silence", "heartbeat", "checkresult"]
)
def test_the_lists_open(client, operator, channel, page):
    alerts.evaluate(numbers=STREAK)
    assert client.get(f"/admin/dashboard/{page}/").status_code == 200
    assert metrics.collect()
