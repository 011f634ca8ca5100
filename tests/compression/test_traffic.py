"""Steady traffic while a model thinks long about a summary: no turn waits longer than the hold.

Smoke size in the suite; ``HERMES_TEST_SIZE=full`` is a model that needs 60 s, a hold of 2 s, and a
message every 3 s for 5 minutes.
"""

from __future__ import annotations

import os
import time

import pytest
import redis

from compression_app.models import CompactionAttempt
from sessions_app.models import Message, Summary, Turn
from tests import factories
from tests.compression.conftest import register_models, session_over_mark, until
from tests.scripted.behaviour import Behaviour
from tests.servers import Run
from tests.socket.conftest import (
    Worker,
    _standing,
    processes,
    socket_environment,
    standing_environment,
)
from tests.states import violations

__all__ = ["_standing", "processes", "socket_environment", "standing_environment"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.process,
    pytest.mark.timeout(600),
]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
THINKS, HOLD, EVERY, LASTS = (60.0, 2.0, 3.0, 300.0) if FULL else (6.0, 1.0, 1.0, 12.0)
SUMMARY = "## Goal\nShip it.\n\n## Done\nMuch of it.\n\n## Next step\nGo on."
THINKING = Behaviour(text=SUMMARY, reasoning="hm " * int(THINKS * 5), tokens_per_second=5)


@pytest.fixture
def state(scripted):
    register_models(scripted)
    scripted.script("fake-chat", default=Behaviour(text="ok"))
    scripted.script("fake-sum", default=THINKING)
    return session_over_mark()


@pytest.fixture
def worker(socket_environment, processes, tmp_path) -> Worker:
    environment = {**socket_environment, "HERMES_TURN_HOLD_SECONDS": str(HOLD)}
    made = Worker(environment, tmp_path / "worker.log")
    processes.append(made)
    made.start()
    until(lambda: "ready" in made.text(), 30)
    return made


def waits(chat) -> list[float]:
    """For each turn, seconds from when it came, or the one before it ended, until it started."""
    found, free_at = [], None
    for turn in Turn.objects.filter(chat=chat, client_turn_id__startswith="t").order_by("pk"):
        came = turn.created_at if free_at is None else max(turn.created_at, free_at)
        found.append((turn.started_at - came).total_seconds())
        free_at = turn.finished_at
    return found


def talk(state, during=lambda number: None) -> int:
    ends, number = time.monotonic() + LASTS, 0
    while time.monotonic() < ends:
        factories.say(state.chat, f"message {number}", client_id=f"t{number}")
        during(number)
        number += 1
        time.sleep(EVERY)
    until(lambda: not Turn.objects.filter(chat=state.chat, finished_at=None).exists(), 60)
    return number


def check(state, scripted, sent: int) -> None:
    turns = Turn.objects.filter(chat=state.chat, client_turn_id__startswith="t")
    assert set(turns.values_list("status", flat=True)) == {"completed"}
    said = Message.objects.filter(turn__in=turns, role="user").order_by("seq")
    assert [text for (text,) in said.values_list("text")] == [f"message {n}" for n in range(sent)]
    assert violations(state) == []
    assert scripted.violations() == []


def test_no_turn_waits_longer_than_the_hold(scripted, state, worker):
    sent = talk(state)

    check(state, scripted, sent)
    took = waits(state.chat)
    assert max(took) <= HOLD + 0.25 + (0 if FULL else 0.5), took  # the smoke run shares its cores
    held = CompactionAttempt.objects.filter(hold_started_at__isnull=False)
    assert held.count() == 1
    assert sum(seconds > 0.5 for seconds in took) <= 1 + (0 if FULL else 2)
    attempts = CompactionAttempt.objects.filter(session__chat=state.chat)
    assert list(attempts.values_list("status", flat=True)) == ["committed"]
    assert Summary.objects.filter(session__chat=state.chat).count() == 1
    print(f"\n{sent} turns, longest wait {max(took):.2f} s with a hold of {HOLD} s; adopted")


def test_killed_workers_and_a_flushed_broker_lose_nothing(
    scripted, state, worker, redis_url, allow_errors
):
    third = max(2, int(LASTS / EVERY / 3))
    killed = []

    def during(number: int) -> None:
        if number in {third, 2 * third - 1}:
            worker.kill()
            killed.append(number)
            worker.start()
        if number == third + 1:
            with redis.Redis.from_url(redis_url) as client:
                for key in client.scan_iter(f"{Run.redis_prefix}*", count=1000):
                    client.delete(key)

    sent = talk(state, during)

    turns = Turn.objects.filter(chat=state.chat, client_turn_id__startswith="t")
    assert turns.count() == sent
    assert set(turns.values_list("status", flat=True)) <= {"completed", "interrupted"}
    assert turns.filter(status="interrupted").count() <= len(killed)
    assert violations(state) == []
    attempts = CompactionAttempt.objects.filter(session__chat=state.chat)
    wasted = attempts.exclude(status="committed").count()
    assert wasted <= len(killed) + 1
    print(f"\n{sent} turns, {len(killed)} kills: {wasted} attempts without a commit")
