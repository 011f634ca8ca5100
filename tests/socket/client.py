"""A client that applies frames exactly as ``docs/frames.md`` says, and can misbehave on request."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect


class ProtocolFault(AssertionError):
    """The server broke a rule of the protocol."""


@dataclass
class TurnText:
    """What a client holds of one turn."""

    run: int = 0
    base: int = 0
    text: str = ""  # from base on
    status: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)  # the live text at each end of it

    @property
    def answer(self) -> str:
        return "".join(m["text"] for m in self.messages if m["role"] == "assistant")


class Client:
    """One connection after the other to one chat (``?html=0``)."""

    def __init__(self, base: str, chat: str, cookie: str, *, origin: str = "", html: bool = False):
        self.url = f"{base}/ws/chats/{chat}/" + ("" if html else "?html=0")
        self.origin = origin or base.replace("ws://", "http://")
        self.cookie = cookie
        self.frames: list[dict[str, Any]] = []
        self.turns: dict[int, TurnText] = {}
        self.messages: dict[int, dict[str, Any]] = {}
        self.queue: list[dict[str, Any]] = []
        self.session: dict[str, Any] | None = None
        self.hellos = 0
        self.faults: list[str] = []
        self.acks = False
        self.connection: ClientConnection | None = None
        self.close_code: int | None = None
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._n = 0

    async def open(self, **more: Any) -> Client:
        """Connect; what is still open is broken off, so that its frames are not taken for these."""
        if self._reader is not None and not self._reader.done():
            await self.close(rudely=True)
        self.connection = await connect(
            self.url,
            origin=self.origin,
            additional_headers={"Cookie": self.cookie},
            max_size=None,
            ping_interval=None,
            **more,
        )
        self.close_code = None
        self._n = 0
        self._reader = asyncio.create_task(self._read(self.connection))
        return self

    async def close(self, *, rudely: bool = False) -> None:
        if self.connection is not None:
            if rudely:
                self.connection.transport.abort()
            else:
                await self.connection.close()
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=5)

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _read(self, connection: ClientConnection) -> None:
        try:
            async for text in connection:
                self.take(json.loads(text))
                if self.acks:
                    await connection.send(json.dumps({"type": "ack", "n": self._n}))
        except websockets.ConnectionClosed:
            pass
        finally:
            self.close_code = connection.close_code
            self._news.set()

    async def send(self, kind: str, **fields: Any) -> None:
        assert self.connection is not None
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def until(self, said: Callable[[], Any], seconds: float = 10) -> Any:
        """Wait until something is true of this client; its value."""
        deadline = time.monotonic() + seconds
        while not (value := said()):
            left = deadline - time.monotonic()
            if left <= 0:
                kinds = [f["type"] for f in self.frames[-30:]]
                closed = self.close_code
                raise TimeoutError(f"not within {seconds} s; closed: {closed}; last: {kinds}")
            self._news.clear()
            try:
                async with asyncio.timeout(min(left, 0.5)):
                    await self._news.wait()
            except TimeoutError:
                pass
        return value

    async def frame(self, kind: str, seconds: float = 10, **fields: Any) -> dict[str, Any]:
        """The first frame of this kind with these fields, as soon as there is one."""

        def found():
            for frame in self.frames:
                if frame["type"] == kind and all(frame.get(n) == v for n, v in fields.items()):
                    return frame
            return None

        return await self.until(found, seconds)

    async def greeted(self, refused: list[int] | None = None) -> dict[str, Any]:
        """Open the connection, as a page does that tries again; the ``hello``.

        A handshake that a busy process does not finish in time is given up, which looks like a
        connection that failed; later it is told in words, with the seconds after which to come
        again. ``refused`` gets an item for each.
        """
        deadline = time.monotonic() + 60
        while True:
            try:
                await self.open()
                told = await self.until(lambda: self._first("hello", "bye"), 30)
            except (websockets.InvalidMessage, OSError):
                told = {"type": "bye", "retry_after": 1.0}
            if told["type"] == "hello":
                return told
            assert time.monotonic() < deadline, told
            assert told["retry_after"], told
            if refused is not None:
                refused.append(1)
            await self.close()
            self.frames.clear()
            await asyncio.sleep(told["retry_after"] * random.uniform(0.5, 1))

    def _first(self, *kinds: str) -> dict[str, Any] | None:
        return next((frame for frame in self.frames if frame["type"] in kinds), None)

    async def submit(self, text: str, key: str = "", seconds: float = 10) -> dict[str, Any]:
        """Send a message; the answer to it."""
        key = key or f"k{random.getrandbits(60):x}"
        ref = f"r{random.getrandbits(60):x}"
        await self.send("turn.submit", id=key, text=text, ref=ref)
        return await self.until(
            lambda: next((f for f in self.frames if f.get("ref") == ref), None), seconds
        )

    async def ended(self, turn: int, seconds: float = 20) -> TurnText:
        """The turn, once it has ended."""
        ends = {"completed", "failed", "cancelled", "interrupted"}
        await self.until(lambda: turn in self.turns and self.turns[turn].status in ends, seconds)
        return self.turns[turn]

    # --- The rules of docs/frames.md

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def take(self, frame: dict[str, Any]) -> None:
        self._n += 1
        if frame["n"] != self._n:
            self.fault(f"frame {frame['n']} where {self._n} was due")
        self.frames.append(frame)
        name = frame["type"].replace(".", "_")
        getattr(self, f"on_{name}", lambda frame: None)(frame)
        self._news.set()

    def turn(self, pk: int) -> TurnText:
        return self.turns.setdefault(pk, TurnText())

    def on_hello(self, frame: dict[str, Any]) -> None:
        self.hellos += 1
        self.whole(frame)

    def on_session_changed(self, frame: dict[str, Any]) -> None:
        self.whole(frame)

    def whole(self, frame: dict[str, Any]) -> None:
        self.session, self.queue = frame["session"], frame["queue"]
        self.messages = {m["seq"]: m for m in frame.get("messages", [])}
        by_turn: dict[int, list[dict[str, Any]]] = {}
        for message in frame.get("messages", []):
            by_turn.setdefault(message["turn"], []).append(message)
        told = frame["turn"]
        for pk, messages in by_turn.items():
            if pk is None:
                continue
            mine = self.turn(pk)
            mine.messages = messages
            is_answered = any(m["role"] == "assistant" for m in messages)
            if is_answered and (told is None or told["id"] != pk):
                # Completion is state: a turn with an answer that is not busy has ended.
                mine.status = "interrupted" if messages[-1]["is_partial"] else "completed"
        if told is not None:
            mine = self.turn(told["id"])
            mine.run, mine.base, mine.status = told["run"], told["base"], told["status"]
            mine.text = told.get("text", "")
            if len(mine.text) != told["len"] - told["base"]:
                self.fault(f"hello: {len(mine.text)} where {told['len']} - {told['base']} is told")

    def on_queue(self, frame: dict[str, Any]) -> None:
        self.queue = frame["items"]

    def on_turn_started(self, frame: dict[str, Any]) -> None:
        mine = self.turn(frame["turn"])
        if frame["run"] < mine.run:
            self.fault(f"run {frame['run']} after {mine.run}")
        mine.run, mine.base, mine.text, mine.status = frame["run"], frame["base"], "", "running"
        if frame["len"] != frame["base"]:
            self.fault("a start with text")
        mine.messages = frame.get("messages", [])

    on_turn_tool = on_turn_started

    def on_turn_delta(self, frame: dict[str, Any]) -> None:
        mine = self.turn(frame["turn"])
        if mine.run != frame["run"]:
            self.fault(f"delta of run {frame['run']} while {mine.run} is followed")
        at = mine.base + len(mine.text)
        if frame["offset"] != at:
            self.fault(f"turn {frame['turn']}: delta at {frame['offset']} where {at} was due")
            return
        mine.text += frame["text"]

    def ending(self, frame: dict[str, Any], status: str) -> None:
        mine = self.turn(frame["turn"])
        held = mine.base + len(mine.text)
        if mine.status == "running" and mine.run == frame["run"]:
            if held < frame["len"]:
                self.fault(f"turn {frame['turn']} ends with {held} of {frame['len']}")
            mine.text = mine.text[: max(0, frame["len"] - mine.base)]
        messages = frame.get("messages", mine.messages)
        answer = "".join(m["text"] for m in messages if m["role"] == "assistant")
        if mine.status == "running" and "messages" in frame and answer[mine.base :] != mine.text:
            self.fault(f"turn {frame['turn']}: the streamed text is not the answer")
        mine.messages, mine.status, mine.run = messages, status, frame["run"]

    def on_turn_completed(self, frame: dict[str, Any]) -> None:
        self.ending(frame, "completed")

    def on_turn_cancelled(self, frame: dict[str, Any]) -> None:
        self.ending(frame, "cancelled")

    def on_turn_interrupted(self, frame: dict[str, Any]) -> None:
        self.ending(frame, "interrupted")

    def on_turn_failed(self, frame: dict[str, Any]) -> None:
        self.ending(frame, "failed")

    def on_turn_queued(self, frame: dict[str, Any]) -> None:
        self.turn(frame["turn"]).status = "queued"

    def on_turn_waiting(self, frame: dict[str, Any]) -> None:
        self.turn(frame["turn"]).status = "waiting"


class Patient(Client):
    """A client that comes back until it has what it asked for, as a page does."""

    hurried = 0.05  # seconds before it comes back

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._coming = asyncio.Lock()

    async def come_back(self) -> None:
        """Be connected, however often that has to be tried, and whoever else asks for it."""
        async with self._coming:
            await self._come_back()

    async def _come_back(self) -> None:
        while self.connection is None or self.close_code is not None or self._reader.done():
            try:
                await self.open(open_timeout=5)
                hellos = self.hellos
                await self.until(
                    lambda hellos=hellos: self.hellos > hellos or self._reader.done(), 10
                )
                if not self._reader.done():
                    return
            except (OSError, websockets.InvalidHandshake, websockets.InvalidMessage, TimeoutError):
                pass
            await asyncio.sleep(self.hurried)

    async def answered(self, kind: str, seconds: float = 60, **fields: Any) -> tuple[int, TurnText]:
        """Ask for a turn under one id until it is accepted; the turn once it has ended."""
        deadline = time.monotonic() + seconds
        key = f"k{random.getrandbits(60):x}"
        turn = None
        ends = {"completed", "failed", "cancelled", "interrupted"}
        while time.monotonic() < deadline:
            await self.come_back()
            try:
                if turn is None:
                    await self.send(kind, id=key, ref=key, **fields)

                def reply() -> Any:
                    mine = [f for f in self.frames if f.get("ref") == key]
                    return (mine and mine[-1]) or self._reader.done()

                told = await self.until(reply, deadline - time.monotonic())
                if told is True:
                    continue
                if told["type"] == "error":
                    assert told["code"] in {"unavailable", "rate"}, told
                    await asyncio.sleep(told["retry"])
                    self.frames.clear()
                    continue
                turn = told["turn"]
                await self.until(
                    lambda pk=turn: self.turn(pk).status in ends or self._reader.done(),
                    deadline - time.monotonic(),
                )
                if self.turn(turn).status in ends:
                    return turn, self.turn(turn)
            except websockets.ConnectionClosed:
                continue
        raise TimeoutError(f"turn {turn} not answered; {vars(self)}"[:2000])
