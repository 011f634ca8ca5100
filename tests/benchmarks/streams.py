"""Answers through the whole product against the model's own stream: real processes, real sockets.

The scripted model runs in a process of its own; web process and worker are those of the product.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from hermes.management.start.programs import TURN_THREADS
from sessions_app import intake
from tests import factories
from tests.scripted import Behaviour, Rule
from tests.scripted.remote import RemoteScripted, scripted_process
from tests.socket.client import Client
from tests.socket.conftest import Web, Worker, rows, sign_in

from .figures import Compared, Figure, percentile
from .ground import Ground

WEB, WORKER = "bench-web", "bench-worker"  # names of their database connections
FIRST = "first token"  # in a message: a short answer at once


@dataclass(frozen=True)
class Flow:
    """What is streamed, and how often."""

    tokens: int = 500
    rate: float = 50.0  # tokens a second
    rounds: int = 3
    streams: tuple[int, ...] = (1, 20)
    firsts: int = 40  # turns whose first token is timed
    crowd: int = 64  # streams while connections are counted
    crowd_tokens: int = 200

    def answer(self, tokens: int | None = None) -> str:
        """What the model says."""
        return " ".join(f"word{n}" for n in range(tokens or self.tokens))


@dataclass
class Arrived:
    """When text came, in seconds since it was asked for."""

    text: str = ""  # what was said
    began: float = 0.0  # when, by the clock of the wall
    pieces: list[tuple[float, int]] = field(default_factory=list)  # (when, characters by then)
    ended: float = 0.0

    @property
    def first(self) -> float:
        return self.pieces[0][0]

    def when(self, characters: int) -> float:
        """When so many characters were there."""
        return next((at for at, reached in self.pieces if reached >= characters), self.ended)


class Timed(Client):
    """A client that notes when frames come."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.stamps: list[tuple[float, dict[str, Any]]] = []

    def take(self, frame: dict[str, Any]) -> None:
        self.stamps.append((time.perf_counter(), frame))
        super().take(frame)

    async def timed(self, text: str, expected: str, seconds: float = 120) -> Arrived:
        """Say something and take the whole answer, which must be ``expected``."""
        self.stamps.clear()
        self.frames.clear()
        arrived, reached = Arrived(text, time.time()), 0
        began = time.perf_counter()
        told = await self.submit(text, seconds=seconds)
        assert told["type"] == "turn.accepted", told
        done = await self.ended(told["turn"], seconds)
        assert (done.answer, self.faults) == (expected, []), (done.status, self.faults)
        for at, frame in self.stamps:
            if frame.get("turn") != told["turn"]:
                continue
            if frame["type"] == "turn.delta":
                reached += len(frame["text"])
                arrived.pieces.append((at - began, reached))
            elif frame["type"] == "turn.completed":
                arrived.ended = at - began
        arrived.pieces = arrived.pieces or [(arrived.ended, len(expected))]
        return arrived


async def bare(base_url: str, text: str, expected: str) -> Arrived:
    """Ask the model itself, over plain HTTP."""
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "fake-chat", "messages": messages, "stream": True}).encode()
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer k\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    arrived, said = Arrived(text, time.time()), ""
    began = time.perf_counter()
    writer.write(head.encode() + body)
    while (line := await reader.readline()) and line != b"data: [DONE]\n":
        if not line.startswith(b"data: "):
            continue
        choices = json.loads(line[6:])["choices"]
        if choices and (piece := choices[0]["delta"].get("content")):
            said += piece
            arrived.pieces.append((time.perf_counter() - began, len(said)))
    arrived.ended = time.perf_counter() - began
    writer.close()
    assert said == expected
    return arrived


@dataclass
class Product:
    """The product at work: its processes, and people with a chat each."""

    ground: Ground
    model: RemoteScripted
    web: Web
    worker: Worker

    def clients(self, count: int) -> list[Timed]:
        """New people, each with a chat of their own and a socket on it, not opened yet."""
        made = []
        for _ in range(count):
            owner = factories.person()
            chat = factories.chat(owner)
            made.append(Timed(self.web.address, str(chat.uid), sign_in(owner)))
        return made

    async def opened(self, count: int) -> list[Timed]:
        """The same, opened and greeted."""
        clients = await rows(self.clients)(count)
        await asyncio.gather(*(client.greeted() for client in clients))
        return clients


def start(ground: Ground, *, threads: int = TURN_THREADS, small: int, **more: str) -> Product:
    """Start the model, a web process and a worker; they end with the ground."""
    model = ground.ends.enter_context(scripted_process())
    web = Web({**ground.named(WEB), **more}, ground.folder / "web.log")
    worker = Worker({**ground.named(WORKER), **more}, ground.folder / "worker.log", threads=threads)
    for process in (web, worker):
        ground.ends.callback(process.stop)
        process.start()
    register(model, small=small)
    return Product(ground, model, web, worker)


def register(model: RemoteScripted, *, small: int) -> None:
    """Let chats be answered by the scripted model, and summed up by its sister.

    A second endpoint has a small window; a chat has to choose it.
    """
    wanted = [("fake-chat", "chat", 100_000, 9), ("fake-chat", "chat", small, 1)]
    for name, role, window, priority in [*wanted, ("fake-sum", "summary", 32_000, 9)]:
        intake.register_endpoint(
            name=f"{name} {window}",
            base_url=model.base_url,
            api_key="k",
            model=name,
            window=window,
            role=role,
            priority=priority,
        )


async def _round(
    product: Product, flow: Flow, streams: int, number: int
) -> tuple[list[Arrived], list[Arrived]]:
    """So many bare streams at once, then as many through the product."""
    expected = flow.answer()
    base = product.model.base_url
    asked = [f"tell me all of it, {number}.{each}" for each in range(streams)]
    alone = await asyncio.gather(*(bare(base, f"{text}a", expected) for text in asked))
    clients = await product.opened(streams)
    through = await asyncio.gather(
        *(client.timed(f"{text}b", expected) for client, text in zip(clients, asked, strict=True))
    )
    for client in clients:
        await client.close()
    return list(alone), list(through)


def on_the_way(streams: list[Arrived], sent: Mapping[str, float], marks: range) -> list[float]:
    """For each stream and mark: seconds from the model's first word to the one at the mark."""
    return [one.began + one.when(mark) - sent[one.text] for one in streams for mark in marks]


async def turn_times(product: Product, flow: Flow, streams: int) -> tuple[Compared, list[float]]:
    """Turn times against bare ones, and how much longer than bare each word was on its way.

    The way of a word begins where the model sends it: how late a turn started is not in it.
    """
    compared, late = Compared(), []
    marks = range(10, len(flow.answer()), 50)
    for number in range(flow.rounds):
        alone, through = await _round(product, flow, streams, number)
        compared.add([one.ended for one in alone], [one.ended for one in through])
        sent = {one["user"]: one["first_at"] for one in product.model.requests("fake-chat")}
        for mark in marks:
            each = range(mark, mark + 1)
            usual = statistics.median(on_the_way(alone, sent, each))
            late += [one - usual for one in on_the_way(through, sent, each)]
    return compared, late


async def first_tokens(product: Product, flow: Flow) -> list[float]:
    """Seconds by which the first token comes later than it does bare, warm."""
    text, expected = FIRST, "one two three"
    alone: list[float] = []
    through: list[float] = []
    (client,) = await product.opened(1)
    for number in range(flow.firsts + 3):
        one = await bare(product.model.base_url, text, expected)
        other = await client.timed(text, expected)
        if number >= 3:  # the first ones warm up
            alone.append(one.first)
            through.append(other.first)
    await client.close()
    return [one - statistics.median(alone) for one in through]


def connections() -> dict[str, int]:
    """How many database connections each process has."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity "
            "WHERE application_name = ANY(%s) GROUP BY 1",
            [[WEB, WORKER]],
        )
        return dict(cursor.fetchall())


async def most_connections(product: Product, flow: Flow) -> tuple[dict[str, int], int]:
    """The most connections of each process, and of streams, while a crowd is answered."""
    expected = flow.answer(flow.crowd_tokens)
    clients = await product.opened(flow.crowd)
    turns = asyncio.gather(*(client.timed("as a crowd", expected, 180) for client in clients))
    most: dict[str, int] = {}
    while not turns.done():
        for name, count in (await rows(connections)()).items():
            most[name] = max(most.get(name, 0), count)
        await asyncio.sleep(0.1)
    await turns
    for client in clients:
        await client.close()
    return most, product.model.report()["most_open"]


def script(model: RemoteScripted, flow: Flow) -> None:
    """Tell the model what to say at which rate."""
    model.script(
        default=Behaviour(text=flow.answer(), tokens_per_second=flow.rate),
        rules=[
            Rule(FIRST, Behaviour(text="one two three")),
            Rule(
                "as a crowd",
                Behaviour(text=flow.answer(flow.crowd_tokens), tokens_per_second=flow.rate),
            ),
        ],
    )


TARGETS = {1: ("B01", 1.03), 20: ("B04", 1.10)}


async def _figures(product: Product, flow: Flow, say: Callable[[str], None]) -> list[Figure]:
    found = []
    late = await first_tokens(product, flow)
    for share, name, target in ((0.5, "p50", 25), (0.95, "p95", 60)):
        value = round(1000 * percentile(late, share), 1)
        told = Figure("B02", f"first token added, {name}", value, target, "ms", rounds=len(late))
        found.append(told)
    for streams in flow.streams:
        say(f"{streams} streams …")
        compared, late = await turn_times(product, flow, streams)
        id, target = TARGETS.get(streams, ("B04", 1.10))
        what = f"turn time against the bare stream, {streams} at once"
        found.append(compared.figure(id, what, target, tokens=flow.tokens, rate=flow.rate))
    value = round(1000 * percentile(late, 0.95), 1)
    what = f"text later than the model sent it, p95, {streams} at once"
    found.append(Figure("B03", what, value, 120, "ms", rounds=flow.rounds))
    say(f"{flow.crowd} streams …")
    most, at_once = await most_connections(product, flow)
    for name in (WEB, WORKER):
        what = f"database connections of {name.removeprefix('bench-')}, {at_once} streams"
        told = Figure("B16", what, most.get(name, 0), settings.DB_POOL, "")
        found.append(told)
    return found


def figures(product: Product, flow: Flow, say: Callable[[str], None]) -> list[Figure]:
    """B01 to B04, and the connections of a crowd."""
    script(product.model, flow)
    found = asyncio.run(_figures(product, flow, say))
    assert product.model.violations() == []
    return found
