"""How soon an end is told, with hints and without, and what processes cost a turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hermes import env
from processes_app import intake
from processes_app.domain import KillBy
from processes_app.models import ProcessRecord
from sessions_app.models import Message, Turn
from tests import factories
from tests.processes import facts
from tests.scripted import Behaviour, Rule
from tests.socket.conftest import Process, free_port, rows

from .figures import Compared, Figure, percentile
from .folding import client_of, until
from .streams import Product

SWEEP = 10.0  # seconds; as delivered
WRITING = "while echo a line of output that somebody may read; do sleep 0.2; done"


@dataclass(frozen=True)
class Reports:
    """How often."""

    exits: int = 40
    unhinted: int = 10
    rounds: int = 5
    repeats: int = 3
    writing: int = 20
    tokens: int = 60


def opened_chat() -> facts.Background:
    """A chat of its own, with one answered exchange."""
    state = facts.Background(factories.chat(facts.allowed_person()))
    turn = factories.say(state.chat, "first token")
    until(lambda: Turn.objects.get(pk=turn.pk).finished_at)
    return state


def begin(state: facts.Background, command: str) -> ProcessRecord:
    """A row as the intake writes it; the supervisor takes it."""
    return facts.add_process(
        state,
        command=command,
        status="starting",
        host="",
        boot_id="",
        pid=None,
        pid_start="",
        started_at=None,
        limit_seconds=600,
    )


def told_after(process: ProcessRecord, seconds: float) -> float:
    """Seconds from the end of a process until its report stood in the transcript."""
    reports = Message.objects.filter(
        kind="completion", session__key=process.origin_session, text__contains=f" {process.uid}:"
    )
    report = until(reports.first, seconds)
    ended_at = ProcessRecord.objects.get(pk=process.pk).ended_at
    assert ended_at is not None
    return float((report.created_at - ended_at).total_seconds())


@contextmanager
def supervised(product: Product, **more: str) -> Iterator[Process]:
    """A supervisor while inside."""
    command = [sys.executable, str(env.BASE / "manage.py"), "supervise"]
    log = product.ground.folder / "supervisor.log"
    process = Process(command, {**product.ground.named("bench-supervisor"), **more}, log)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def idle(told: Reports) -> list[float]:
    """One end after the other, each in a session where nothing else happens."""
    found = []
    for number in range(told.exits + 2):
        took = told_after(begin(opened_chat(), "sleep 0.3; echo done"), 30)
        if number >= 2:  # the first ones warm up
            found.append(took)
    return found


def unhinted(product: Product, told: Reports) -> list[float]:
    """Ends of which nobody is hinted: the supervisor's broker does not answer."""
    states = [opened_chat() for _ in range(told.unhinted)]
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    with supervised(product, REDIS_URL=nobody):
        started = [
            begin(state, f"sleep {0.5 + number}; echo done") for number, state in enumerate(states)
        ]
        return [told_after(process, 2 * SWEEP + told.unhinted) for process in started]


def stop_all(state: facts.Background) -> None:
    """End the processes of a chat."""
    for row in ProcessRecord.objects.active().filter(origin_chat=state.chat.key):
        intake.ask_kill(row.pk, by=KillBy.AGENT)
    until(lambda: not ProcessRecord.objects.active().exists())


def write_all(state: facts.Background, count: int) -> None:
    """Start processes that write, and wait until all do."""
    for number in range(count):
        begin(state, f"{WRITING} # {number}")
    active = ProcessRecord.objects.active().filter(origin_chat=state.chat.key)
    until(lambda: active.filter(status="running", output_bytes__gt=0).count() == count, 60)


async def beside(product: Product, told: Reports) -> Compared:
    """Turn times without any process and beside those that write."""
    compared = Compared()
    answer = " ".join(f"word{n}" for n in range(told.tokens))
    for _ in range(told.rounds):
        state = await rows(opened_chat)()
        client = await rows(client_of)(product, state)
        async with client:
            await client.frame("hello")
            alone = [(await client.timed("beside", answer)).ended for _ in range(told.repeats)]
            await rows(write_all)(state, told.writing)
            along = [(await client.timed("beside", answer)).ended for _ in range(told.repeats)]
            await rows(stop_all)(state)
        compared.add(alone, along)
    return compared


def figures(product: Product, told: Reports) -> list[Figure]:
    """B20, and a turn beside processes."""
    answer = " ".join(f"word{n}" for n in range(told.tokens))
    product.model.script(
        rules=[
            Rule("first token", Behaviour(text="one two three")),
            Rule("beside", Behaviour(text=answer, tokens_per_second=50)),
        ]
    )
    with supervised(product):
        hinted = idle(told)
        compared = asyncio.run(beside(product, told))
    late = unhinted(product, told)
    what = f"turn time beside {told.writing} processes that write against none"
    return [
        Figure(
            "B20",
            "exit to transcript, idle session, p95",
            round(percentile(hinted, 0.95), 3),
            1.5,
            "s",
            rounds=len(hinted),
            detail={"p50": round(percentile(hinted, 0.5), 3)},
        ),
        Figure(
            "B20",
            "exit to transcript, its hint lost, longest",
            round(max(late), 3),
            SWEEP + 1,
            "s",
            rounds=len(late),
        ),
        compared.figure("B29", what, 1.1, tokens=told.tokens),
    ]
