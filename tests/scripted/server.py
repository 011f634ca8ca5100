"""The server itself: asyncio streams, one task a connection, cheap enough for many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from .behaviour import Behaviour, Rule, expected_answer, expected_summary
from .stream import Rendering
from .strict import violations

T = TypeVar("T")
MODELS = ("fake-chat", "fake-sum")


class Cut(Exception):
    """The script ends the connection here."""


@dataclass
class Seen:
    """One request, as ``GET /__requests`` shows it; times are seconds of ``time.time()``."""

    number: int
    model: str
    at: float
    user: str
    body: dict[str, Any]
    headers: dict[str, str]
    violations: list[str] = field(default_factory=list)
    headers_at: float | None = None
    first_at: float | None = None
    ended_at: float | None = None
    end: str = "open"  # open | done | cut | gone (the client went) | refused
    sent: int = 0  # tokens


@dataclass
class Script:
    """What one model does."""

    default: Behaviour = field(default_factory=Behaviour)
    queue: deque[Behaviour] = field(default_factory=deque)  # each for one request
    rules: list[Rule] = field(default_factory=list)

    def next(self, user: str) -> Behaviour:
        """The behaviour for the next request."""
        if self.queue:
            return self.queue.popleft()
        for rule in self.rules:
            if rule.match in user and rule.times != 0:
                if rule.times is not None:
                    rule.times -= 1
                return rule.behaviour
        return self.default


class State:
    """All that the server knows; touched by its loop only."""

    def __init__(self) -> None:
        self.strict = True
        self.writers: set[asyncio.StreamWriter] = set()
        self.reset()

    def reset(self) -> None:
        self.scripts: dict[str, Script] = defaultdict(Script)
        self.seen: list[Seen] = []
        self.released: set[str] = set()
        self.waiting: dict[str, asyncio.Event] = {}
        self.open: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.most_open = 0
        self.unread = 0  # requests that were no JSON in UTF-8

    def release(self, name: str) -> None:
        self.released.add(name)
        if name in self.waiting:
            self.waiting[name].set()

    async def hold(self, name: str) -> None:
        if name not in self.released:
            await self.waiting.setdefault(name, asyncio.Event()).wait()

    def script(
        self,
        model: str,
        default: Any = None,
        queue: Iterable[Any] | None = None,
        rules: Iterable[Any] | None = None,
    ) -> None:
        script = self.scripts[model]
        if default is not None:
            script.default = Behaviour.of(default)
        if queue is not None:
            script.queue = deque(map(Behaviour.of, queue))
        if rules is not None:
            script.rules = list(map(Rule.of, rules))

    def report(self) -> dict[str, Any]:
        models = set(MODELS) | set(self.open) | set(self.closed)
        return {
            "requests": [vars(seen) for seen in self.seen],
            "counts": {
                model: {"open": self.open[model], "closed": self.closed[model]}
                for model in sorted(models)
            },
            "most_open": self.most_open,
            "violations": sum(len(seen.violations) for seen in self.seen) + self.unread,
        }


async def serve(state: State, port: int = 0, host: str = "127.0.0.1") -> asyncio.Server:
    """Listen; the server answers as long as the loop runs."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await _Connection(state, reader, writer).run()
        finally:
            writer.close()
            state.writers.discard(writer)

    return await asyncio.start_server(connected, host, port, backlog=512)


class _Connection:
    """One connection carries one request."""

    def __init__(
        self, state: State, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.state = state
        self.reader = reader
        self.writer = writer
        self.left: int | None = None  # bytes of the body that may still go out
        self.chunked = True

    async def run(self) -> None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        raw = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if path.startswith("/__"):
            data = json.loads(raw) if raw else {}
            self.json(200, self.control(path, data))
        elif method == "GET" and path.endswith("/models"):
            names = [{"id": name, "object": "model", "owned_by": "scripted"} for name in MODELS]
            self.json(200, {"object": "list", "data": names})
        elif method == "POST" and path.endswith("/chat/completions"):
            await self.complete(raw, headers)
        else:
            self.json(404, {"error": {"message": f"no such address: {path}"}})
        await self.writer.drain()

    def control(self, path: str, data: dict[str, Any]) -> Any:
        state = self.state
        match path:
            case "/__script":
                if "strict" in data:
                    state.strict = data.pop("strict")
                if data:
                    state.script(**data)
            case "/__release":
                state.release(data["name"])
            case "/__reset":
                state.reset()
            case "/__requests":
                return state.report()
        return {"ok": True}

    def json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self.plain(status, json.dumps(data).encode(), {"Content-Type": "application/json"}, headers)

    def plain(self, status: int, body: bytes, *headers: dict[str, str] | None) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}", "Connection: close"]
        for group in headers:
            lines += [f"{name}: {value}" for name, value in (group or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def error(self, status: int, message: str, **more: Any) -> None:
        self.json(status, {"error": {"message": message, "type": "invalid_request_error", **more}})

    async def complete(self, raw: bytes, headers: dict[str, str]) -> None:
        state = self.state
        try:
            body = json.loads(raw.decode("utf-8", "strict"))
            raw.decode().encode("utf-8")
            json.dumps(body, ensure_ascii=False).encode("utf-8")
        except ValueError as error:  # also a lone surrogate
            state.unread += 1
            self.error(400, f"strict: the body is not JSON in UTF-8: {error}")
            return
        broken = violations(body)
        messages = body.get("messages") or [{}]
        spoken = [m.get("content") for m in messages if m.get("role") == "user"]
        user = spoken[-1] if spoken and isinstance(spoken[-1], str) else ""
        model = str(body.get("model"))
        number = len(state.seen) + 1
        seen = Seen(number, model, time.time(), user, body, headers, violations=broken)
        state.seen.append(seen)
        if state.strict and broken:
            seen.end, seen.ended_at = "refused", time.time()
            self.error(400, "strict: " + "; ".join(broken))
            return
        state.open[model] += 1
        state.most_open = max(state.most_open, sum(state.open.values()))
        gone = asyncio.ensure_future(self.reader.read(1))
        work = asyncio.ensure_future(self.answer(seen, state.scripts[model].next(user)))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                seen.end = "gone"
                work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        except (Cut, ConnectionError) as error:
            seen.end = "cut" if isinstance(error, Cut) else "gone"
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)  # none ends unlooked at
            seen.ended_at = time.time()
            state.open[model] -= 1
            state.closed[model] += 1

    async def answer(self, seen: Seen, behaviour: Behaviour) -> None:
        if behaviour.delay:
            await asyncio.sleep(behaviour.delay)
        if behaviour.hold and behaviour.hold_at < 0:
            await self.state.hold(behaviour.hold)
        if behaviour.hang_up:
            raise Cut
        seen.headers_at = time.time()
        if refusal := self.refusal(seen, behaviour):
            status, data = refusal
            self.json(status, data)
        elif behaviour.status != 200 or behaviour.body is not None:
            body = (behaviour.body or "").encode()
            kind = {"Content-Type": "application/json"} | behaviour.headers
            self.plain(behaviour.status, body, kind)
        else:
            await self.stream(seen, behaviour)
        await self.writer.drain()
        seen.end = "done"

    def refusal(self, seen: Seen, behaviour: Behaviour) -> tuple[int, Any] | None:
        for name in behaviour.refuse:
            if name in seen.body:
                words = f"Unsupported parameter: '{name}' is not supported with this model."
                if name == "max_tokens":
                    words += " Use 'max_completion_tokens' instead."
                return 400, {"error": {"message": words, "param": name}}
        if behaviour.key is not None and seen.headers.get("authorization") != (
            f"Bearer {behaviour.key}"
        ):
            given = seen.headers.get("authorization", "")
            words = f"Incorrect API key provided: {given}"
            return 401, {"error": {"message": words, "code": "invalid_api_key"}}
        return None

    async def stream(self, seen: Seen, behaviour: Behaviour) -> None:
        self.left = behaviour.cut_after
        self.reset = behaviour.reset
        self.chunked = behaviour.framing == "chunked"
        lines = ["HTTP/1.1 200 OK", "Connection: close"]
        headers = {"Content-Type": "text/event-stream"} | behaviour.headers
        if self.chunked:
            headers["Transfer-Encoding"] = "chunked"
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if (body := behaviour.body_bytes) is not None:
            await self.out(body, behaviour.piece_bytes)
        else:
            await self.told(seen, behaviour)
        if self.left is not None:
            self.cut()
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")

    async def told(self, seen: Seen, behaviour: Behaviour) -> None:
        answer = expected_summary if seen.model == "fake-sum" else expected_answer
        text = answer(seen.user) if behaviour.text is None else behaviour.text
        rendering = Rendering(behaviour, text, seen.body)
        if not behaviour.stream:
            await self.out(rendering.whole(), behaviour.piece_bytes)
            return
        pause = 1 / behaviour.tokens_per_second if behaviour.tokens_per_second else 0.0
        due = time.monotonic()
        for token in rendering.tokens():
            await self.between(seen, behaviour)
            if pause:
                # From a fixed start, so that the rate holds however late one wake-up is.
                due += pause
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self.out(token, behaviour.piece_bytes)
            seen.first_at = seen.first_at or time.time()
            seen.sent += 1
        await self.between(seen, behaviour)
        for part in rendering.tail():
            await self.out(part, behaviour.piece_bytes)

    async def between(self, seen: Seen, behaviour: Behaviour) -> None:
        if behaviour.hold and behaviour.hold_at == seen.sent:
            await self.writer.drain()
            await self.state.hold(behaviour.hold)
        if behaviour.stall_after == seen.sent:
            await self.writer.drain()
            await asyncio.Event().wait()

    async def out(self, data: bytes, size: int) -> None:
        if self.left is not None and len(data) >= self.left:
            self.write(data[: self.left])
            await self.writer.drain()
            self.cut()
        if self.left is not None:
            self.left -= len(data)
        for start in range(0, len(data), size or len(data) or 1):
            self.write(data[start : start + size] if size else data)
            await self.writer.drain()
            if size:
                await asyncio.sleep(0)

    def write(self, data: bytes) -> None:
        if data and self.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.writer.write(data)

    def cut(self) -> None:
        if self.reset:
            raw = self.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        raise Cut


class ScriptedServer:
    """The server in a thread of this process: a context manager with the controls as methods."""

    def __init__(self, *, strict: bool = True) -> None:
        self._state = State()
        self._state.strict = strict
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.run_coroutine_threadsafe(serve(self._state), self._loop)
        self._server = serving.result(5)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for writer in list(self._state.writers):
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):  # a transport says its farewell in a later round of the loop
            await asyncio.sleep(0)

    @property
    def address(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL of the API."""
        return f"{self.address}/v1"

    def _in_loop(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(5)

    def script(
        self,
        model: str = "fake-chat",
        default: Behaviour | None = None,
        *,
        queue: Iterable[Behaviour] | None = None,
        rules: Iterable[Rule] | None = None,
    ) -> None:
        """Set what a model does; what is not given stays."""
        self._in_loop(lambda: self._state.script(model, default, queue, rules))

    def strict(self, on: bool) -> None:
        """Refuse invalid requests, or only count them."""
        self._in_loop(lambda: setattr(self._state, "strict", on))

    def release(self, name: str) -> None:
        """Let everyone pass who waits, or will wait, for this name."""
        self._in_loop(lambda: self._state.release(name))

    def reset(self) -> None:
        """Forget scripts and requests."""
        self._in_loop(self._state.reset)

    def report(self) -> dict[str, Any]:
        """What ``GET /__requests`` answers."""
        return self._in_loop(lambda: json.loads(json.dumps(self._state.report())))

    def requests(self, model: str | None = None) -> list[dict[str, Any]]:
        """The requests so far, oldest first."""
        seen = self.report()["requests"]
        return [one for one in seen if model is None or one["model"] == model]

    def violations(self) -> list[str]:
        """Every rule that a request broke."""
        return [words for seen in self.requests() for words in seen["violations"]]

    def wait(self, condition: Callable[[dict[str, Any]], Any], seconds: float = 5.0) -> Any:
        """The first true value of a condition on the report; fails after so many seconds."""
        return wait_for(self.report, condition, seconds)


def wait_for(
    report: Callable[[], dict[str, Any]],
    condition: Callable[[dict[str, Any]], Any],
    seconds: float,
) -> Any:
    """The first true value of a condition on what ``report`` returns."""
    end = time.monotonic() + seconds
    while True:
        seen = report()
        if value := condition(seen):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"It did not come true within {seconds} s: {seen['counts']}")
        time.sleep(0.01)
