"""Every answer arrives byte-equal, whatever happens to hints, connections and processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time

import pytest

from sessions_app import intake
from tests import factories
from tests.scripted import Behaviour, Rule
from tests.scripted.remote import scripted_process

from .client import Client, Patient
from .conftest import Web, Worker, sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process, pytest.mark.fault]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
SOCKETS = 20 if FULL else 5
TURNS = 200 if FULL else 10
KILLS = 3 if FULL else 1  # of the worker
WEB_KILLS = 3 if FULL else 2  # the web process takes as long to start as a short answer
WORDS = [
    "alpha",
    "βeta",
    "日本",
    "naïve",
    "👩‍👩‍👧",
    "\n\n- item",
    "`code`",
    "**bold**",
    "\n\n",
    "e\u0301",
]


def prose(seed: int, words: int = 100) -> str:
    """An answer of its own for each turn, with signs of every width."""
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) + str(chosen.randint(0, 99)) for _ in range(words))


@pytest.fixture(scope="module")
def model():
    with scripted_process() as server:
        rate = 120.0 if FULL else 90.0
        server.script(
            rules=[
                Rule(f"turn-{n};", Behaviour(text=prose(n), tokens_per_second=rate))
                for n in range(TURNS)
            ]
        )
        yield server


@pytest.fixture
def chats(model, transactional_db):
    intake.register_endpoint(
        name="scripted",
        base_url=model.base_url,
        api_key="k",
        model="fake-chat",
        window=100_000,
        role="chat",
        priority=9,
    )
    made = []
    for _ in range(SOCKETS):
        owner = factories.person()
        made.append((str(factories.chat(owner).uid), sign_in(owner)))
    return made


async def drive(web, chats, *, retry: bool = False, sabotage=None) -> dict[str, int]:
    """Say everything, all chats at once; count what came. Each chat is watched by a second tab."""
    counts = {"turns": 0, "equal": 0, "prefixes": 0, "frames": 0, "hellos": 0, "faults": 0}
    speakers = [Patient(web.address, *chat) for chat in chats]
    watchers = [Patient(web.address, *chat) for chat in chats]

    async def speak(number: int) -> None:
        client = speakers[number]
        for n in range(number, TURNS, SOCKETS):
            expected = prose(n)
            turn, told = await client.answered("turn.submit", text=f"turn-{n};", seconds=90)
            counts["turns"] += 1
            if retry and told.answer != expected:
                assert expected.startswith(told.answer), (told.answer, expected)
                assert told.status == "interrupted", told
                counts["prefixes"] += 1
                while told.answer != expected:
                    _turn, told = await client.answered("turn.regenerate", turn=turn, seconds=90)
                    assert expected.startswith(told.answer)
            assert told.answer == expected
            counts["equal"] += 1

    async def watch(number: int) -> None:
        while True:
            await watchers[number].come_back()
            await asyncio.sleep(0.05)

    watching = [asyncio.create_task(watch(n)) for n in range(len(chats))]
    disturbing = [
        asyncio.create_task(each) for each in (sabotage(speakers + watchers) if sabotage else ())
    ]
    try:
        await asyncio.gather(*(speak(n) for n in range(len(chats))))
        for task in disturbing:
            task.cancel()
        await asyncio.gather(*disturbing, return_exceptions=True)
        for speaker, watcher in zip(speakers, watchers, strict=True):
            await speaker.come_back()
            await watcher.come_back()
            if not retry:
                ends = lambda w=watcher, s=speaker: set(s.turns) <= set(w.turns)  # noqa: E731
                await watcher.until(ends, 10)
                for turn, told in speaker.turns.items():
                    await watcher.until(lambda t=turn, w=watcher: w.turns[t].answer, 10)
                    assert watcher.turns[turn].answer == told.answer
    finally:
        for task in [*watching, *disturbing]:
            task.cancel()
        for client in speakers + watchers:
            with contextlib.suppress(Exception):
                await client.close()
    for client in speakers + watchers:
        counts["frames"] += len(client.frames)
        counts["hellos"] += client.hellos
        counts["faults"] += len(client.faults)
        assert client.faults == []
    return counts


def flapping(clients: list[Client]):
    async def flap():
        while True:
            await asyncio.sleep(random.uniform(0.05, 0.3))
            client = random.choice(clients)
            if client.connection is not None and client.close_code is None:
                client.connection.transport.abort()

    return [flap()]


def show(capsys, name: str, began: float, counts: dict[str, int]) -> None:
    with capsys.disabled():
        told = ", ".join(f"{value} {key}" for key, value in counts.items())
        print(f"\n  {name}: {told}, {SOCKETS} chats at once, {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("drop", ["0", "0.5", "1"])
async def test_hints_are_lost_doubled_and_late(
    drop, chats, socket_environment, processes, tmp_path, capsys
):
    lossy = {"DJANGO_SETTINGS_MODULE": "tests.settings_lossy", "TEST_LAYER_DROP": drop}
    environment = {**socket_environment, **lossy}
    web = Web(environment, tmp_path / "web.log")
    worker = Worker(environment, tmp_path / "worker.log", threads=SOCKETS)
    processes += [web, worker]
    worker.start()
    web.start()
    began = time.monotonic()
    counts = await drive(web, chats)

    assert counts["equal"] == counts["turns"] == TURNS
    show(capsys, f"{float(drop):.0%} of hints lost", began, counts)


async def test_clients_flap(chats, own_web, own_worker, capsys):
    began = time.monotonic()
    counts = await drive(own_web, chats, sabotage=flapping)

    assert counts["equal"] == counts["turns"] == TURNS
    assert counts["hellos"] > 2 * SOCKETS
    show(capsys, "clients flap", began, counts)


async def test_the_web_process_is_killed(chats, own_web, own_worker, capsys):
    kills = []

    def killing(clients):
        async def kill():
            for _ in range(WEB_KILLS):
                await asyncio.sleep(1.0 if FULL else 0.5)
                own_web.kill()
                kills.append(time.monotonic())
                await asyncio.to_thread(own_web.start)

        return [kill()]

    began = time.monotonic()
    counts = await drive(own_web, chats, sabotage=killing)

    assert len(kills) == WEB_KILLS
    assert counts["equal"] == counts["turns"] == TURNS
    show(capsys, f"web killed {len(kills)} times", began, counts)


async def test_the_worker_is_killed(chats, own_web, own_worker, capsys):
    kills = []

    def killing(clients):
        async def kill():
            while len(kills) < KILLS:
                busy = [t for c in clients for t in c.turns.values() if t.status == "running"]
                if any(100 < len(turn.text) < 500 for turn in busy):
                    own_worker.kill()
                    kills.append(time.monotonic())
                    own_worker.start()
                    # Not again before the new worker has said what became of these.
                    while any(turn.status == "running" for turn in busy):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                await asyncio.sleep(0.05)

        return [kill()]

    began = time.monotonic()
    counts = await drive(own_web, chats, retry=True, sabotage=killing)

    assert kills
    assert counts["equal"] == counts["turns"] == TURNS
    assert counts["prefixes"]
    show(capsys, f"worker killed {len(kills)} times", began, counts)
