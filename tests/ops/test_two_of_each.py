"""Two web processes and two workers of each queue, as ``deploy/`` starts them; one of each dies.

Smoke size in the suite; ``HERMES_TEST_SIZE=full`` is more people who say more, and three deaths of
each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.module_loading import import_string

from compression_app.models import CompactionAttempt
from processes_app.files import Folder
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app.models import Message, Session, Summary, Turn
from tests.processes import storm
from tests.processes.storm import Planned
from tests.scripted import Behaviour, Call, Rule
from tests.scripted.remote import scripted_process
from tests.servers import forget_hints
from tests.socket.conftest import rows
from tests.socket.test_exact import prose

from . import two

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.process,
    pytest.mark.fault,
    pytest.mark.timeout(1200),
]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
PEOPLE, ROUNDS, DEATHS, MOST = (8, 6, 3, 600) if FULL else (4, 1, 1, 120)
PADDING = "and so on, " * 250
BODY = "## Goal\nShip it.\n\n## Done\nMuch of it.\n\n## Next step\nGo on."
CODES = (0, 0, 3)


def command(number: int, *, is_long: bool = False) -> str:
    """What a process runs: what is on the operators' list, or what a person is asked about."""
    if is_long:
        return f"sleep 4; echo word-{number}.; exit 0"
    if number % 3 == 0:
        return f"echo word-{number}."
    seconds = random.Random(number).uniform(0.5, 3.0)
    return f"sleep {seconds:.1f}; echo word-{number}.; exit {CODES[number % 3]}"


@pytest.fixture
def model(transactional_db):
    with scripted_process() as server:
        talk = [
            Rule(f"turn-{n};", Behaviour(text=prose(n, 60), tokens_per_second=40))
            for n in range(1, MOST)
        ]
        starts = [
            Rule(f"{word}-{n};", Behaviour(text=f"Begun {n}.", calls=(_call(n, word == "long"),)))
            for n in range(1, MOST)
            for word in ("start", "long")
        ]
        server.script("fake-chat", default=Behaviour(text="Noted."), rules=[*talk, *starts])
        server.script("fake-sum", default=Behaviour(text=BODY, tokens_per_second=12))
        for role, name, window in (("chat", "fake-chat", 8_000), ("summary", "fake-sum", 32_000)):
            chats.register_endpoint(
                name=name,
                base_url=server.base_url,
                api_key="k",
                model=name,
                window=window,
                role=role,
                priority=9,
            )
        yield server


def _call(number: int, is_long: bool) -> Call:
    given = {"command": command(number, is_long=is_long), "background": True}
    return Call("run_command", json.dumps(given), id=f"call_{number}")


@pytest.fixture
def product(transactional_db, process_environment, tmp_path):
    forget_hints(os.environ["REDIS_URL"])
    made = two.Product(
        process_environment,
        tmp_path,
        HERMES_SWEEP_SECONDS="1",
        HERMES_SANDBOX_ACCEPTED="none",  # whatever this machine has
        HERMES_COMMANDS="allow-list",
        HERMES_ALLOWED_COMMANDS="echo *",
        HERMES_PROCESSES_A_PERSON="100",
        HERMES_PROCESSES_IN_ALL="1000",
        HERMES_AUTOMATIC_TURNS="1000",
        HERMES_WAKES_AN_HOUR="1000",
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()
        if os.environ.get("HERMES_TEST_SHOW"):
            print(made.logs())


async def live(person: two.Person, is_over: asyncio.Event) -> None:
    """Talk, work and begin afresh; then go on talking until the last death is over."""
    for _ in range(ROUNDS):
        for step in ("talk", "work", "new", "talk", "work", "talk", "talk", "talk"):
            await act(person, step)
    while not is_over.is_set():
        await act(person, random.choice(("talk", "talk", "work")))


async def act(person: two.Person, step: str) -> None:
    number = next(two.numbers)
    assert number < MOST, "more was said than there are answers"
    if step == "talk":
        await person.talk(number, prose(number, 60), PADDING)
    elif step == "work":
        await person.work(f"start-{number};")
    else:
        await person.work(f"long-{number};")
        await person.begin_afresh()  # before that can have ended


async def kill_in_the_middle(product: two.Product, people: list[two.Person]) -> None:
    """Kill one part of each kind while it is at work."""

    def busy_turns() -> str:
        streaming = Turn.objects.filter(status="running", chunks__isnull=False)
        owners = streaming.values_list("lease_owner", flat=True)
        return next(filter(None, map(product.part_of, owners)), "")

    def busy_background() -> str:
        running = CompactionAttempt.objects.filter(status="running")
        owners = running.values_list("lease_owner", flat=True)
        return next(filter(None, map(product.part_of, owners)), "")

    def busy_supervisor() -> str:
        return "supervisor" if ProcessRecord.objects.filter(status="running").exists() else ""

    def busy_web() -> str:
        for person in people:
            tab = person.speaker
            if any(t.status == "running" and len(t.text) > 20 for t in list(tab.turns.values())):
                return f"web-{[a in tab.url for a in product.addresses].index(True)}"
        return ""

    kinds = [busy_turns, busy_background, busy_supervisor, busy_web, lambda: "beat"]
    for _ in range(DEATHS):
        random.shuffle(kinds)
        for kind in kinds:
            name = await two.until(kind, 60)
            assert name, f"{kind.__name__}: nothing was at work"
            await product.kill(name)
            await asyncio.sleep(0.3)
        assert await two.until(product.is_whole, 60), "not all came again"
    assert await two.until(adopted().exists, 60), "no summary was adopted after it"


def adopted():
    """Sessions that are read through a summary."""
    return Session.objects.filter(ended_at=None, summary__isnull=False)


async def play(product: two.Product, people: list[two.Person]) -> None:
    """Everybody at once, each in two tabs, while parts die."""
    is_over = asyncio.Event()
    watching = [asyncio.create_task(person.watcher.allow()) for person in people]
    killing = asyncio.create_task(kill_in_the_middle(product, people))
    killing.add_done_callback(lambda _: is_over.set())
    try:
        await asyncio.gather(*(live(person, is_over) for person in people))
        await killing
        assert await two.until(is_quiet, 60), await rows(what_is_left)()
    finally:
        for task in [*watching, killing]:
            task.cancel()


def is_quiet() -> bool:
    """Whether nothing runs, nothing is due and no turn is open."""
    return not any(what_is_left())


def what_is_left() -> list[list]:
    return [
        list(ProcessRecord.objects.active().values()),
        list(CompletionEvent.objects.filter(status__in=["pending", "accepted"]).values()),
        list(Turn.objects.filter(status__in=["queued", "running", "waiting"]).values()),
        list(CompactionAttempt.objects.filter(status__in=["queued", "running"]).values()),
    ]


def said_wrongly(people: list[two.Person]) -> list[str]:
    """What was lost, doubled, or said in a chat that is not its own."""
    faults = []
    for person in people:
        heard: Counter[int] = Counter()
        answers: dict[int, str] = {}
        number = 0  # of the message whose answer is read; 0: something else
        rows = Message.objects.filter(session__chat=person.chat).live().order_by("session", "seq")
        for role, kind, text in rows.values_list("role", "kind", "text"):
            if role == "user":
                found = re.match(r"turn-(\d+); ", text) if kind == "text" else None
                number = int(found[1]) if found else 0
                heard[number] += 1
                answers[number] = ""
                if kind == "text" and f"; of {person.name}" not in text:
                    faults.append(f"{text[:40]!r} in the chat of {person.name}")
            elif role == "assistant":
                answers[number] += text
        for each in person.said:
            if heard[each] != 1:
                faults.append(f"turn {each} of {person.name} stands there {heard[each]} times")
            elif answers[each] != prose(each, 60):
                faults.append(f"turn {each} of {person.name}: {answers[each][:60]!r}")
        faults += [f"turn {each} in {person.name}" for each in set(heard) - {0, *person.said}]
    return faults


def plan(people: list[two.Person]) -> None:
    """What each process that there is was told to do."""
    for person in people:
        for row in ProcessRecord.objects.filter(origin_chat=person.chat.key):
            word = re.search(r"word-\d+\.", row.command)
            code = re.search(r"exit (\d)", row.command)
            person.planned.append(Planned(row.uid, word[0], int(code[1]) if code else 0))


async def shown(product: two.Product, person: two.Person) -> list[list]:
    """What each web process tells of a chat: the page's log, and what a socket is greeted with."""
    told = []
    for web, address in enumerate(product.addresses):
        tab = two.Tab([address], str(person.chat.uid), person.cookie)
        hello = await tab.greeted()
        await tab.close()
        page = await asyncio.to_thread(
            product.page, web, f"/chats/{person.chat.uid}/", person.cookie
        )
        names = ("chat", "session", "messages", "turn", "queue", "meter", "processes", "approvals")
        told.append([*(hello[name] for name in names), steady(page)])
    return told


def steady(page: str) -> str:
    """A page without what is drawn for each request, and without how long ago things were."""
    page = re.sub(r'(name="csrf(?:middleware|-)token" (?:value|content))="\w+"', r"\1", page)
    return re.sub(r"\b\d+ (?:s|sec|seconds?|min|minutes?)\b", "…", page)


async def test_one_of_each_dies_in_the_middle_and_nothing_is_lost(product, model, capsys):
    addresses = product.addresses
    people = await rows(
        lambda: [
            two.Person.make(f"person-{n}", addresses if n % 2 else addresses[::-1])
            for n in range(PEOPLE)
        ]
    )()
    began = time.monotonic()
    try:
        await play(product, people)
        took = time.monotonic() - began
        for person in people:
            one, other = await shown(product, person)
            assert one == other
            assert one[2]
            assert f"of {person.name}." in one[-1]
            await person.speaker.come_back()
            await person.watcher.come_back()
    except BaseException:
        print(product.logs())
        raise
    finally:
        for person in people:
            for tab in (person.speaker, person.watcher):
                with contextlib.suppress(Exception):
                    await tab.close()
    await rows(examine)(product, model, people, took, capsys)


def examine(product: two.Product, model, people: list[two.Person], took: float, capsys) -> None:
    plan(people)
    folder = Path(product.environment["HERMES_VAR"]) / "processes"
    found = storm.check(people, lambda uid: Folder(folder / uid).output().text)
    done = sum((person.done for person in people), Counter())
    tabs = [tab for person in people for tab in (person.speaker, person.watcher)]
    ended = Counter(CompactionAttempt.objects.values_list("status", flat=True))
    faults = [*said_wrongly(people), *found.faults]
    faults += [fault for tab in tabs for fault in tab.faults]
    broken = [line for name in settings.HERMES_INVARIANTS for line in import_string(name)(None)]
    delivered, dropped = (found.counts[w] for w in ("delivered", "dropped closed_by_user"))
    kills = sum(product.killed.values())
    with capsys.disabled():
        print(
            f"\n  two of each: {done['turns']} turns, {done['equal']} equal, "
            f"{done['prefixes']} prefixes asked again, {delivered} ends delivered, "
            f"{dropped} dropped at a reset, {Approval.objects.filter(status='allowed').count()} "
            f"approvals, {Summary.objects.count()} summaries ({adopted().count()} in use), "
            f"{sum(tab.moved for tab in tabs)} moves to the other web, {kills} kills "
            f"({dict(product.killed)}), {len(faults)} lost or doubled, {took:.0f} s"
        )
    assert faults == [], found.counts
    assert broken == []
    assert done["equal"] == done["turns"]
    kinds = ("web", "turns", "background", "supervisor", "beat")
    assert product.killed == dict.fromkeys(kinds, DEATHS)
    assert delivered
    assert dropped
    assert delivered + dropped == sum(len(person.planned) for person in people)
    assert adopted().exists()
    assert set(ended) <= {"committed", "lost", "superseded"}, ended
    assert model.violations() == []
    # A part that came again counts once: the dashboard sees as many as were started.
    product.until(product.is_whole, 30)
    assert product.plain_lines() == []
