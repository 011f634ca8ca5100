"""The whole product under load and kills: every end is told once, to whoever asked for it.

Smoke size in the suite; ``HERMES_TEST_SIZE=full`` is two people with 500 processes each, and ten
kills of worker, supervisor and web.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from hermes import env
from processes_app import invariants
from processes_app.files import Folder
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app.models import Message, Turn
from tests import factories
from tests.scripted import Behaviour, Rule
from tests.scripted.remote import scripted_process
from tests.servers import Run
from tests.socket.conftest import (
    Process,
    Web,
    Worker,
    _standing,
    processes,
    socket_environment,
    standing_environment,
)

from . import facts, storm
from .conftest import until

__all__ = ["_standing", "processes", "socket_environment", "standing_environment"]
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.process,
    pytest.mark.fault,
    pytest.mark.timeout(900),
]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
EACH, KILLS = (500, 10) if FULL else (25, 3)
EXITS = 100 if FULL else 30
SEED = int(os.environ.get("HERMES_TEST_SEED") or random.randrange(10**6))


class Product:
    """Worker, supervisor and web, each to be killed."""

    def __init__(self, environment, folder: Path, made: list[Process], model) -> None:
        self.environment = {
            **environment,
            "HERMES_SANDBOX": "none",
            "HERMES_SANDBOX_ACCEPTED": "none",
            "HERMES_PROCESSES_A_PERSON": "5000",
            "HERMES_PROCESSES_IN_ALL": "5000",
            "HERMES_AUTOMATIC_TURNS": "100000",
            "HERMES_WAKES_AN_HOUR": "100000",
            "HERMES_WORKSPACE": str(folder / "workspace"),
        }
        supervise = [sys.executable, str(env.BASE / "manage.py"), "supervise"]
        self.parts = {
            "worker": Worker(self.environment, folder / "worker.log"),
            "supervisor": Process(supervise, self.environment, folder / "supervisor.log"),
            "web": Web(self.environment, folder / "web.log"),
        }
        self.killed: Counter[str] = Counter()
        made.extend(self.parts.values())
        for part in self.parts.values():
            part.start()
        chats.register_endpoint(
            name="scripted",
            base_url=model.base_url,
            api_key="sk-right",
            model="fake-chat",
            window=32_000,
            role="chat",
        )

    def kill(self, name: str) -> None:
        """End a part as a power cut would, and start it again."""
        self.parts[name].kill()
        self.killed[name] += 1
        self.parts[name].start()

    def output_of(self, uid: str) -> str:
        """The whole output of a process, from its files."""
        return Folder(Path(self.environment["HERMES_VAR"]) / "processes" / uid).output().text


@pytest.fixture(autouse=True)
def _quiet():
    """Hints are real here."""


@pytest.fixture
def model():
    with scripted_process() as server:
        server.script(rules=[Rule("busy", Behaviour(text="so " * 60, tokens_per_second=20))])
        yield server


@pytest.fixture
def product(socket_environment, processes, tmp_path, model):
    assert Run.redis_prefix
    made = Product(socket_environment, tmp_path, processes, model)
    yield made
    rows = ProcessRecord.objects.active().values_list("pid", flat=True)
    assert not rows, "processes were left"


def quiet(seconds: float) -> None:
    """Wait until nothing runs, nothing is due and no turn is open."""
    unsettled = CompletionEvent.objects.filter(status__in=["pending", "accepted"])
    open_turns = Turn.objects.filter(status__in=["queued", "running", "waiting"])
    until(
        lambda: (
            not ProcessRecord.objects.active().exists()
            and not unsettled.exists()
            and not open_turns.exists()
        ),
        seconds,
    )


def test_whatever_is_killed_every_end_is_told_once_to_its_owner(product, allow_errors):
    chance = random.Random(SEED)
    lanes = [
        storm.Lane(name, random.Random(f"{SEED}{name}"), 8.0 if FULL else 4.0)
        for name in ("anna", "bert")
    ]
    names = (["worker", "supervisor", "web"] * 4)[:KILLS]
    chance.shuffle(names)
    began = time.monotonic()
    kills = [functools.partial(product.kill, name) for name in names]
    pause, share = (0.1, 0.06) if FULL else (0.05, 0.2)
    storm.drive(lanes, EACH, kills, pause=pause, share=share)
    quiet(240 if FULL else 60)
    took = time.monotonic() - began

    found = storm.check(lanes, product.output_of)
    acts = sum((lane.done for lane in lanes), Counter())
    broken = invariants.check_invariants()
    print(
        f"\nstorm: 2 people x {EACH} processes, {acts['new']} resets, {acts['delete']} deletions, "
        f"{sum(product.killed.values())} kills ({dict(product.killed)}), seed {SEED}, {took:.0f} s"
    )
    print(f"storm: {dict(found.counts)}; 0 wrong, 0 doubled, 0 lost" if not found.faults else "")
    assert found.faults == [], found.counts
    assert broken == []
    told = found.counts["delivered"] + found.counts["dropped closed_by_user"]
    assert told == 2 * EACH
    if FULL:  # how many depends on when resets come, and so few of the small size may miss them all
        assert found.counts["delivered"] >= EACH / 10
    assert sum(product.killed.values()) == KILLS


def test_many_exits_in_a_second_reach_a_busy_session_behind_its_people(product):
    state = facts.Background(factories.chat(facts.allowed_person()))
    factories.say(state.chat, "hello")
    until(lambda: not Turn.objects.filter(finished_at=None).exists(), 30)
    ends = time.time() + (25 if FULL else 8)
    for number in range(EXITS):
        facts.add_process(
            state,
            command=f"sleep $(( {int(ends)} - $(date +%s) )); echo exit-{number}.",
            status="starting",
            host="",
            boot_id="",
            pid=None,
            pid_start="",
            started_at=None,
            limit_seconds=600,
        )
    until(lambda: ProcessRecord.objects.filter(status="running").count() == EXITS, 30)
    assert time.time() < ends - 2, "this machine is too slow to start them all before they end"
    time.sleep(max(0.0, ends - 1.5 - time.time()))
    factories.say(state.chat, "busy", client_id="b")
    said = [factories.say(state.chat, f"people first {n}", client_id=f"p{n}") for n in range(2)]
    quiet(60)

    rows = ProcessRecord.objects.filter(origin_chat=state.chat.key)
    ended = sorted(row.ended_at for row in rows)
    reports = Message.objects.filter(kind="completion").order_by("seq")
    spread = (ended[-1] - ended[0]).total_seconds()
    took = (max(report.created_at for report in reports) - ended[0]).total_seconds()
    people = [Turn.objects.get(pk=turn.pk) for turn in said]
    uids = list(rows.values_list("uid", flat=True))
    named = Counter(uid for report in reports for uid in uids if f" {uid}:" in report.text)
    print(
        f"\nexits: {EXITS} within {spread:.2f} s to a busy session, "
        f"all told after {took:.2f} s in {len(reports)} turns"
    )
    assert named == dict.fromkeys(uids, 1)
    assert {turn.status for turn in people} == {"completed"}
    before = [report for report in reports if report.seq < people[-1].first_seq]
    assert before == [], "a report went ahead of somebody who waited"
    assert took <= 10
    assert len(reports) <= 12
    assert facts.violations(state) == []
