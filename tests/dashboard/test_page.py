"""The dashboard: few queries, true numbers, links to what is behind them, strict policy."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compression_app import fence
from compression_app import intake as compaction
from compression_app.models import CompactionAttempt, CompressionState
from hermes.dashboard import alerts, heartbeats, sweeps
from hermes.dashboard.models import Alert, CheckResult, Heartbeat
from hermes.lib.db import DbNow
from hermes.lib.leases import Owner
from processes_app.signals import supervisor_began
from sessions_app.models import History, Periodic, Turn
from tests import factories, states

from .conftest import attempt, failed, gone, small_model, up_to_now

pytestmark = pytest.mark.django_db


def page(client, query: str = "") -> str:
    response = client.get(f"/admin/{query}")
    assert response.status_code == 200
    return response.content.decode()


def verdict(text: str) -> tuple[str, str]:
    level = re.search(r'data-part="verdict" data-level="(\w+)"', text)[1]
    return level, re.search(r'<h2 id="verdict">(.*?)</h2>', text)[1]


@pytest.mark.usefixtures("alive", "operator")
class TestWell:
    def test_all_well(self, client):
        assert verdict(page(client)) == ("ok", "All well.")

    def test_what_was_not_checked_yet_is_neither_well_nor_counted(self, client):
        text = page(client)
        cell = next(
            each for each in re.findall(r"<li .*?</li>", text, re.S) if "Invariants" in each
        )
        assert "not checked yet" in cell
        assert 'data-state="none"' in cell
        assert "#i-timer" in cell
        assert "OK:" not in cell
        assert "All 7 checks pass. 1 has no answer yet." in text

        CheckResult.objects.create(name="invariants", violations=0)
        assert "All 8 checks pass." in page(client)

    @pytest.mark.parametrize("query", ["", "?range=1h", "?range=7d&tz=local", "?range=30d"])
    def test_it_opens_with_few_queries(self, client, query):
        small_model()
        states.fresh()
        for _ in range(3):
            failed(streak=2)
        up_to_now()
        with CaptureQueriesContext(connection) as queries:
            page(client, query)
        assert len(queries) <= 20, [each["sql"][:80] for each in queries]

    def test_its_policy_lets_no_expression_be_evaluated(self, client):
        for url in ("/admin/", "/admin/desk/live/"):
            policy = client.get(url)["Content-Security-Policy"]
            assert "unsafe" not in policy
        assert "unsafe-eval" in client.get("/admin/sessions_app/turn/")["Content-Security-Policy"]

    def test_the_live_parts_are_those_of_the_page(self, client):
        whole, parts = page(client), client.get("/admin/desk/live/").content.decode()
        names = re.findall(r'data-part="(\w+)"', parts)
        assert re.findall(r'data-part="(\w+)"', whole) == names
        assert {"verdict", "health", "turns", "attempts", "streaks", "cooldowns"} <= set(names)

    def test_every_link_leads_to_a_page(self, client):
        small_model()
        failed(streak=3)
        up_to_now()
        text = page(client)
        links = set(re.findall(r'href="(/admin/[^"]+)"', text))
        assert len(links) > 25
        for link in links:
            assert client.get(link.replace("&amp;", "&")).status_code == 200, link

    def test_numbers_are_true_and_lead_to_their_rows(self, client):
        small_model()
        failed(streak=2)
        fence.hold(attempt().pk, 1, attempt().session_id)
        state = states.queued()
        up_to_now()
        text = page(client)

        assert "1,000" in text
        assert "stalled" in text
        queued = client.get("/admin/sessions_app/turn/?status__exact=queued").context["cl"]
        assert [row.pk for row in queued.queryset] == [state.turn.pk]


@pytest.mark.usefixtures("alive", "operator")
class TestUnwell:
    def test_a_worker_that_is_gone(self, client):
        gone("worker", "turns")
        text = page(client)
        assert verdict(text) == ("bad", "One thing needs you.")
        assert "No worker takes the queue “turns”." in text
        assert "Start it again; its log says why it went." in text

    def test_no_supervisor(self, client):
        gone("supervisor", "bwrap")
        text = page(client)
        assert verdict(text)[0] == "bad"
        assert "No supervisor is there." in text

    @pytest.mark.parametrize(
        ("level", "state", "told"),
        [
            ("landlock", "ok", "sandbox: landlock"),
            ("none", "bad", "no sandbox (none)"),
            ("refused", "warn", "no command runs"),
            ("off", "ok", "commands are off"),
        ],
    )
    def test_the_sandbox_in_force(self, client, level, state, told):
        Heartbeat.objects.filter(kind="supervisor").update(queues=level)
        text = page(client)
        cell = next(each for each in re.findall(r"<li .*?</li>", text, re.S) if told in each)
        assert f'data-state="{state}"' in cell
        assert ("run without a sandbox" in text) is (level == "none")

    def test_one_of_two_workers(self, client):
        gone("worker", "turns")
        Heartbeat.objects.create(owner="b|b|1|1", kind="worker", host="b", queues="turns")
        text = page(client)
        assert verdict(text)[0] == "warn"
        assert "A worker of the queue “turns” is gone." in text

    def test_a_process_that_is_gone_for_good_is_waited_for_no_more(self, client, operator):
        Heartbeat.objects.create(owner="b|b|1|1", kind="web", host="b")
        lives, lost = Heartbeat.objects.get(host="b"), Heartbeat.objects.get(queues="turns")
        gone("worker", "turns")
        operator.user_permissions.add(Permission.objects.get(codename="delete_heartbeat"))
        data = {
            "action": "forget",
            "_selected_action": [lives.pk, lost.pk],
            "reason": "The second host is switched off.",
        }
        client.post("/admin/dashboard/heartbeat/", data)
        assert list(Heartbeat.objects.filter(pk__in=[lives.pk, lost.pk])) == [lives]
        assert History.objects.get(to="forget").actor == "operator"

    def test_sessions_that_fail_in_a_row(self, client):
        small_model()
        failed(streak=3)
        text = page(client)
        assert verdict(text)[0] == "bad"
        assert "1 session fails to be summarised" in text

    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            ("authentication", "The summary model refuses its key."),
            ("not_found", "There is no such summary model at its address."),
            ("quota", "The account of the summary model is used up."),
        ],
    )
    def test_what_no_try_mends_is_told_by_its_cause_at_the_first_failure(self, client, kind, told):
        small_model()
        made = failed(streak=1)
        CompactionAttempt.objects.filter(pk=made.pk).update(detail=f"{kind}: HTTP 4xx")
        text = page(client)
        assert verdict(text)[0] == "bad"
        assert told in text
        assert "Look at the models" in text

    def test_the_latest_failure_of_several_sessions_is_the_last(self, client):
        small_model()
        for minutes in (50, 10):
            CompactionAttempt.objects.filter(pk=failed(streak=3).pk).update(
                finished_at=DbNow() - timedelta(minutes=minutes)
            )
        text = page(client)
        assert "Last failure 10 min" in text
        assert "Turns run on; the contexts of these sessions are not shortened." in text

    def test_one_failure_that_a_try_may_mend_needs_nobody(self, client):
        small_model()
        made = failed(streak=1)
        CompactionAttempt.objects.filter(pk=made.pk).update(detail="overloaded: HTTP 503")
        assert verdict(page(client))[0] == "ok"

    def test_a_pause_that_may_have_been_forgotten(self, client):
        compaction.set_paused(
            scope=compaction.EVERYTHING, paused=True, actor="rosa", reason="the key is old"
        )
        assert verdict(page(client))[0] == "ok"
        CompressionState.objects.update(paused_at=DbNow() - timedelta(hours=30))
        text = page(client)
        assert verdict(text)[0] == "warn"
        assert "Compaction is paused." in text
        assert "For 1 d 6 h by now." in text

    def test_messages_that_wait(self, client):
        state = states.queued()
        Turn.objects.filter(pk=state.turn.pk).update(created_at=DbNow() - timedelta(seconds=200))
        text = page(client)
        assert "1 message waits for its turn." in text
        assert verdict(text)[0] == "bad"

    def test_no_sweep(self, client):
        Periodic.objects.update(last_run_at=DbNow() - timedelta(seconds=600))
        assert "No sweep runs." in page(client)

    def test_no_broker(self, client, settings):
        settings.REDIS_URL = "redis://127.0.0.1:1"
        assert "The broker does not answer." in page(client)

    def test_broken_invariants(self, client):
        CheckResult.objects.create(name="invariants", violations=1, detail="I-17 session 4: …")
        text = page(client)
        assert "Rows break their invariants." in text
        assert "I-17 session 4" in text

    def test_a_check_finds_what_is_broken(self, client, allow_errors):
        state = states.fresh()
        state.turn = Turn.objects.get(chat=state.chat)
        type(state.turn.session).objects.update(last_seq=99)
        assert sweeps.check(force=True) > 0
        assert "Rows break their invariants." in page(client)


def beats(kind: str, *, began: float, seen: float = 0.0, queues: str = "", host: str = "a") -> None:
    """A process that began, and was last seen, so many seconds ago."""
    Heartbeat.objects.create(
        owner=f"{host}|boot|{kind}{queues}|{began}",
        kind=kind,
        host=host,
        queues=queues,
        began_at=DbNow() - timedelta(seconds=began),
        seen_at=DbNow() - timedelta(seconds=seen),
    )


@pytest.mark.usefixtures("operator")
class TestStarting:
    MISSING = (
        "No worker takes the queue",
        "No supervisor is there",
        "Beat is not",
        "No sweep runs",
    )

    @pytest.fixture(params=[False, True], ids=["the first", "a later one"])
    def earlier(self, request):
        """What an earlier start has left behind."""
        if request.param:
            for queue in ("turns", "background"):
                beats("worker", began=4000, seen=600, queues=queue)
            beats("supervisor", began=4000, seen=600, queues="bwrap")
            Periodic.objects.create(name="sweep", last_run_at=DbNow() - timedelta(seconds=600))
        return request.param

    def test_what_has_not_told_yet_is_starting_and_alarms_nobody(self, client, earlier):
        beats("web", began=4)
        text = page(client)
        assert not any(each in text for each in self.MISSING)
        for told in ("turns starting", "background starting"):
            assert told in text
        assert verdict(text) == ("none", "Starting.")
        assert "0/" not in text
        alerts.evaluate()
        assert not Alert.objects.filter(rule="process_missing").exists()

    def test_what_ended_a_moment_before_the_start_is_no_part_of_it(self, client):
        me = Owner.me()
        Heartbeat.objects.create(
            owner=str(Owner(me.host, me.boot, me.pid, "1")),  # its number is somebody else's now
            kind="worker",
            host=me.host,
            queues="turns",
            began_at=DbNow() - timedelta(hours=1),
            seen_at=DbNow() - timedelta(seconds=8),
        )
        beats("web", began=4)
        assert verdict(page(client)) == ("none", "Starting.")

    def test_after_the_time_of_silence_it_is_missing(self, client, earlier):
        beats("web", began=21)
        text = page(client)
        assert "No worker takes the queue “turns”." in text
        assert ("It has not been seen yet." in text) is not earlier
        assert "seen never seen" not in text
        alerts.evaluate()
        assert Alert.objects.filter(rule="process_missing").exists()

    def test_one_that_told_since_the_start_and_fell_silent_is_missing(self, client):
        beats("web", began=4)
        beats("worker", began=3, seen=25, queues="turns")
        assert "No worker takes the queue “turns”." in page(client)

    def test_a_web_process_that_comes_back_beside_others_is_no_start(self, client):
        beats("web", began=4)
        beats("worker", began=4000, queues="background")
        assert "No worker takes the queue “turns”." in page(client)


def test_an_empty_installation_says_so(client, operator):
    text = page(client)
    for word in ("Nothing was summarised", "No session fails in a row", "No turn ended"):
        assert word in text


def test_staff_without_the_permission_get_the_plain_index(client):
    client.force_login(factories.person("staff", is_staff=True))
    index = client.get("/admin/")
    assert b"data-part" not in index.content
    assert "unsafe-eval" in index["Content-Security-Policy"]  # unfold's page needs it
    assert client.get("/admin/desk/live/").status_code == 403


def test_others_get_nothing(client):
    assert client.get("/admin/").status_code == 302
    client.force_login(factories.person("someone"))
    for url in ("/admin/", "/admin/desk/live/", "/admin/desk/sessions/1/"):
        assert client.get(url).status_code == 302


def test_a_supervisor_tells_its_level_with_its_signs_of_life(monkeypatch):
    told = []
    monkeypatch.setattr(heartbeats, "begin", lambda *what: told.append(what))
    supervisor_began.send(sender=None, level="landlock")
    assert told == [("supervisor", ["landlock"])]


def test_a_supervisor_replaces_one_of_another_level(alive):
    me = Owner.me()
    for kind, queues, start in (("supervisor", "none", "1"), ("worker", "other", "2")):
        owner = str(Owner(me.host, me.boot, me.pid, start))  # its number is somebody else's now
        Heartbeat.objects.create(owner=owner, kind=kind, host=me.host, queues=queues)
    assert heartbeats.forget_replaced("supervisor", ["bwrap"]) == 1
    assert heartbeats.forget_replaced("worker", ["turns"]) == 0
    assert Heartbeat.objects.filter(queues="other").exists()
