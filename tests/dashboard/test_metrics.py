"""/metrics: who may read it, and that each number moves with what it is about."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from compression_app import fence
from compression_app.models import CompactionAttempt, CompressionState
from hermes import env
from hermes.dashboard import metrics, rollups
from hermes.dashboard.models import Alert, CheckResult, RollupMark
from hermes.lib.db import DbNow, db_now
from processes_app import runner
from processes_app.models import CompletionEvent
from sessions_app import transcript
from sessions_app.domain import TurnStatus
from sessions_app.models import Periodic, Turn
from tests import states
from tests.processes import facts

from .conftest import attempt, dropped, failed, gone, lost, small_model, up_to_now

pytestmark = pytest.mark.django_db
LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)


def numbers(client) -> dict[str, float]:
    """Every sample of a scrape, by its name with labels."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    text = response.content.decode()
    return {
        f"{name}{{{labels}}}" if labels else name: float(value)
        for name, labels, value in LINE.findall(text)
    }


# --- Each number moves ----------------------------------------------------------------------------


def _turn_ends() -> None:
    states.fresh()


def _turn_queued() -> None:
    state = states.queued()
    Turn.objects.filter(pk=state.turn.pk).update(created_at=DbNow() - timedelta(seconds=300))


def _turn_fails() -> None:
    state = states.claimed()
    transcript.start(state.claimed)
    transcript.end(state.claimed, TurnStatus.FAILED, transcript.Step(), code="quota")


def _turn_held() -> None:
    small_model()
    made = attempt()
    fence.hold(made.pk, 1, made.session_id)


def _turn_delayed() -> None:
    _turn_held()
    made = CompactionAttempt.objects.get()
    CompactionAttempt.objects.update(hold_started_at=DbNow() - timedelta(seconds=30))
    fence.end(made.pk, made.session_id, "failed", "stalled")


def _deferred() -> None:
    _turn_held()
    made = CompactionAttempt.objects.get()
    fence.release(made.pk, made.session_id)
    fence.end(made.pk, made.session_id, "lost", "lease_expired")


def _failed() -> None:
    small_model()
    failed(streak=4)


def _attempt_open() -> None:
    small_model()
    attempt()


def _breaker() -> None:
    CompressionState.objects.create(scope="endpoint:0", breaker_until=DbNow() + timedelta(hours=1))


def _worker_gone() -> None:
    gone("worker", "turns")


def _swept_long_ago() -> None:
    Periodic.objects.update(last_run_at=DbNow() - timedelta(hours=1))


def _broken() -> None:
    CheckResult.objects.create(name="invariants", violations=2)


def _alert() -> None:
    Alert.objects.create(rule="streak", is_firing=True)


def _news_due() -> None:
    facts.ended()
    CompletionEvent.objects.update(due_at=DbNow() - timedelta(seconds=90))


def _news_retries() -> None:
    facts.ended()
    CompletionEvent.objects.update(due_at=DbNow() + timedelta(seconds=90))


def _news_accepted() -> None:
    facts.accepted()


def _news_delivered() -> None:
    state = facts.accepted()
    transcript.start(transcript.claim(state.turn.session_id))
    runner.deliver(state.chat.key)


def _dropped() -> None:
    dropped()


def _dropped_unproven() -> None:
    dropped("owner_unproven")


def _dropped_unknown() -> None:
    dropped("unknown_type")


def _process_runs() -> None:
    facts.running()


def _process_lost() -> None:
    lost()


def _supervisor_gone() -> None:
    gone("supervisor", "bwrap")


def _rollup_late() -> None:
    RollupMark.objects.update(through=DbNow() - timedelta(days=1))


CASES = [
    (_turn_ends, 'hermes_turns_ended_total{outcome="completed"}', 1),
    (_turn_ends, "hermes_turn_wait_seconds_count", 1),
    (_turn_fails, 'hermes_turn_errors_total{reason="quota"}', 1),
    (_turn_queued, 'hermes_turns{state="queued"}', 1),
    (_turn_queued, "hermes_oldest_queued_turn_seconds", 300),
    (_turn_held, "hermes_turns_held", 1),
    (_turn_delayed, "hermes_turns_delayed_last_hour", 1),
    (_deferred, 'hermes_compaction_deferred_total{outcome="ended"}', 1),
    (_failed, 'hermes_compaction_attempts_total{outcome="failed"}', 1),
    (_failed, 'hermes_compaction_failures_total{reason="stalled"}', 1),
    (_failed, 'hermes_compaction_tokens_total{outcome="failed"}', 1000),
    (_failed, "hermes_compaction_tokens_wasted_last_hour", 1000),
    (_failed, "hermes_streak_longest", 4),
    (_failed, "hermes_streak_sessions", 1),
    (_failed, 'hermes_cooldowns_active{kind="ladder"}', 1),
    (_attempt_open, 'hermes_compaction_attempts_open{state="queued"}', 1),
    (_breaker, "hermes_breakers_open", 1),
    (_worker_gone, 'hermes_processes_up{kind="worker",queue="turns"}', -1),
    (_worker_gone, 'hermes_processes_missing{kind="worker",queue="turns"}', 1),
    (_worker_gone, "hermes_heartbeat_age_seconds", 20),
    (_swept_long_ago, "hermes_sweep_age_seconds", 3600),
    (_broken, "hermes_invariant_violations", 2),
    (_alert, "hermes_alerts_firing", 1),
    (_news_due, 'hermes_completions{state="pending"}', 1),
    (_news_due, "hermes_oldest_due_completion_seconds", 90),
    (_news_retries, 'hermes_completions{state="retrying"}', 1),
    (_news_accepted, 'hermes_completions{state="accepted"}', 1),
    (_news_delivered, 'hermes_completions_settled_total{outcome="delivered"}', 1),
    (_dropped, 'hermes_completions_settled_total{outcome="dropped"}', 1),
    (_dropped, 'hermes_completions_dropped_total{reason="closed_by_user"}', 1),
    (_dropped, 'hermes_completions_dropped_last_hour{reason="closed_by_user"}', 1),
    (_dropped, 'hermes_background_processes_ended_total{outcome="ended"}', 1),
    (_process_runs, "hermes_background_processes", 1),
    (_process_lost, 'hermes_background_processes_ended_total{outcome="lost"}', 1),
    (_process_lost, "hermes_processes_lost_last_hour", 1),
    (_supervisor_gone, 'hermes_processes_missing{kind="supervisor"}', 1),
    (_supervisor_gone, 'hermes_sandbox_supervisors{level="bwrap"}', -1),
]


@pytest.mark.usefixtures("alive")
@pytest.mark.parametrize(("cause", "name", "by"), CASES)
def test_it_moves(client, settings, cause, name, by):
    up_to_now()
    before = numbers(client).get(name, 0)
    cause()
    up_to_now()
    moved = numbers(client)[name] - before

    assert moved == by if abs(by) < 20 else by - 1 <= moved < by + 60  # seconds go on


def test_rollups_that_lag_are_told(client):
    up_to_now()
    assert numbers(client)["hermes_rollup_lag_seconds"] < 400
    _rollup_late()
    assert numbers(client)["hermes_rollup_lag_seconds"] >= 86_400


def test_the_p95_of_waits(client):
    states.fresh()
    Turn.objects.update(created_at=DbNow() - timedelta(seconds=45))
    up_to_now()
    assert 30 < numbers(client)["hermes_turn_wait_p95_seconds"] <= 60


def test_a_broker_that_is_away(client, settings):
    assert numbers(client)["hermes_broker_down"] == 0
    settings.REDIS_URL = "redis://127.0.0.1:1"
    assert numbers(client)["hermes_broker_down"] == 1


def test_connections_and_version(client):
    told = numbers(client)
    assert 0 < told["hermes_database_connections"] < told["hermes_database_connections_limit"]
    assert any(name.startswith("hermes_info{version=") for name in told)


def test_every_number_is_moved_by_a_test():
    text = Path(__file__).read_text(encoding="utf-8")
    up_to_now()
    _failed()
    rollups.roll_up(db_now())
    assert {metric.name for metric in metrics.collect() if metric.name not in text} - {
        "hermes_turn_wait_seconds_bucket",
        "hermes_turn_wait_seconds_sum",
    } == set()


# --- Who may read it ------------------------------------------------------------------------------


class TestWho:
    def test_this_machine(self, client):
        assert client.get("/metrics").status_code == 200

    @pytest.mark.parametrize("address", ["203.0.113.9", "10.1.2.3", ""])
    def test_nobody_else(self, client, address):
        assert client.get("/metrics", REMOTE_ADDR=address).status_code == 404

    def test_a_network_that_is_named(self, client, settings):
        settings.HERMES_METRICS_NETWORKS = ["10.0.0.0/8"]
        assert client.get("/metrics", REMOTE_ADDR="10.1.2.3").status_code == 200
        assert client.get("/metrics", REMOTE_ADDR="127.0.0.1").status_code == 404

    def test_a_proxy_that_is_not_believed_is_nobody(self, client):
        assert client.get("/metrics", headers={"X-Forwarded-For": "1.2.3.4"}).status_code == 404

    def test_with_a_token_only_the_token_counts(self, client, settings):
        settings.HERMES_METRICS_TOKEN = "s3cret"
        for told in ("", "Bearer wrong", "Bearer ", "s3cret"):
            assert client.get("/metrics", headers={"Authorization": told}).status_code == 404
        told = {"Authorization": "Bearer s3cret"}
        assert client.get("/metrics", headers=told, REMOTE_ADDR="203.0.113.9").status_code == 200


# --- What deploy/ asks for ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grafana/hermes.json", "prometheus/alerts.yml"])
def test_what_is_drawn_and_watched_elsewhere_is_told(client, name):
    text = (env.BASE / "deploy" / name).read_text(encoding="utf-8")
    if name.endswith("json"):
        json.loads(text)
    asked = set(re.findall(r"\bhermes_[a-z0-9_]+", text))
    told = {each.partition("{")[0] for each in numbers(client)}
    moved = {name.partition("{")[0] for _cause, name, _by in CASES}
    assert asked
    assert asked - told - moved == set()
