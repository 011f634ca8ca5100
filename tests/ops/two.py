"""Two of each part, started by the command lines of ``deploy/systemd``, and people on both webs."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import shlex
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import websockets

from hermes import env
from hermes.dashboard import heartbeats
from hermes.lib.db import db_now
from tests import factories
from tests.processes import facts
from tests.processes.storm import Planned
from tests.servers import Run
from tests.socket.client import Patient
from tests.socket.conftest import Process, free_port, rows, sign_in

UNITS = env.BASE / "deploy" / "systemd"
ORIGIN = "https://chat.example.org"
COOKIE = "__Host-sessionid"
RESTART = 2.0  # seconds, as the units say
# What a proxy tells a web process of the request that it passes on.
PROXIED = {"Host": "chat.example.org", "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
UP = {"web": 2, "worker:turns": 2, "worker:background": 2, "beat": 1, "supervisor": 1}


def command_of(unit: str, instance: str = "") -> list[str]:
    """What systemd would run for a unit, with the Python of this run."""
    text = re.sub(r"\\\n\s*", " ", (UNITS / unit).read_text(encoding="utf-8"))
    line = re.search(r"^ExecStart=(.+)$", text, re.M)
    assert line, unit
    python, *words = shlex.split(line[1].replace("%i", instance).replace("%%", "%"))
    assert python.endswith("/.venv/bin/python"), unit
    return [sys.executable, *words]


class Product:
    """The parts of ``deploy/systemd`` on the servers of the run: two webs, two workers a queue."""

    def __init__(self, environment: Mapping[str, str], folder: Path, **settings: str) -> None:
        assert Run.folder is not None
        kept = {name: (Run.folder / name).read_text().strip() for name in KEYS.values()}
        self.environment = {
            **environment,
            **{name: kept[file] for name, file in KEYS.items()},
            "HERMES_ORIGINS": ORIGIN,
            "HERMES_ADMIN_USERNAME": "operator-of-two",
            "HERMES_ADMIN_PASSWORD": "long-and-of-no-word-4711",
            "HERMES_PROCESSES": "6",
            "HERMES_DB_POOL": "8",
            "HERMES_LOG_FORMAT": "json",
            **settings,
        }
        self.folder = folder
        self.ports = (free_port(), free_port())
        made = {
            **{f"web-{n}": ("hermes-web@.service", str(self.ports[n])) for n in (0, 1)},
            **{f"turns-{n}": ("hermes-turns.service", "") for n in (0, 1)},
            **{f"background-{n}": ("hermes-background.service", "") for n in (0, 1)},
            "beat": ("hermes-beat.service", ""),
            "supervisor": ("hermes-supervisor.service", ""),
        }
        self.parts = {name: self._part(name, *unit) for name, unit in made.items()}
        self.killed: Counter[str] = Counter()

    def _part(self, name: str, unit: str, instance: str = "") -> Process:
        log = self.folder / f"{name}.log"
        return Process(command_of(unit, instance), self.environment, log)

    def start(self) -> None:
        """Prepare, start everything at once, and wait until all have told that they live."""
        prepare = self._part("prepare", "hermes-prepare.service")
        prepare.start()
        assert prepare.process.wait(60) == 0, prepare.text()
        for part in self.parts.values():
            part.start()
        self.until(self.is_whole, 60)

    def is_whole(self) -> bool:
        """Whether every part is there, as the dashboard counts, and both webs are ready."""
        seen = heartbeats.census(db_now())
        there = {kind: (seen[kind].up, seen[kind].known) for kind in UP if kind in seen}
        wanted = {kind: (number, number) for kind, number in UP.items()}
        return there == wanted and all(self.page(n, "/readyz") for n in (0, 1))

    def until(self, what: Callable[[], object], seconds: float) -> None:
        """Wait for something; fail with the logs."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)

    def page(self, web: int, path: str, cookie: str = "") -> str:
        """What a web process answers to what a proxy passes on; empty if it does not."""
        told = {**PROXIED, **({"Cookie": cookie} if cookie else {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[web]}{path}", headers=told)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    @property
    def addresses(self) -> list[str]:
        """Where the sockets of both webs are."""
        return [f"ws://127.0.0.1:{port}" for port in self.ports]

    async def kill(self, name: str) -> None:
        """End a part as a power cut would; what keeps it starts it again a moment later."""
        part = self.parts[name]
        await asyncio.to_thread(part.kill)
        self.killed[name.partition("-")[0]] += 1
        asyncio.get_running_loop().call_later(RESTART, part.start)

    def part_of(self, owner: str) -> str:
        """The name of the part that holds a lease; empty if it is none."""
        pid = owner.split("|")[2] if owner.count("|") == 3 else ""
        return next(
            (n for n, p in self.parts.items() if p.process and str(p.process.pid) == pid), ""
        )

    def stop(self) -> None:
        """End everything as systemd would, all at once."""
        running = [p for p in self.parts.values() if p.process and p.process.poll() is None]
        for part in running:
            part.process.terminate()
        for part in running:
            part.stop(15)

    def plain_lines(self) -> list[str]:
        """Lines of the logs that are not JSON, although that was asked for.

        A death may cut one off in its middle: what follows it stands on the same line.
        """
        return [
            f"{name}: {line}"
            for name, part in self.parts.items()
            for line in part.text().splitlines()
            if not line.startswith("{")
        ]

    def logs(self) -> str:
        """The end of what each part has logged."""
        return "\n".join(f"--- {n}\n{p.text()[-1500:]}" for n, p in self.parts.items())


SHOWN = ("type", "n", "turn", "run", "offset", "base", "len", "status", "code", "reason")
KEYS = {"HERMES_SECRET_KEY": "secret_key", "HERMES_SECRET_KEYS": "field_key"}


class Tab(Patient):
    """A tab that goes over to the other web process where its own does not answer."""

    hurried = 0.1

    def __init__(self, addresses: list[str], chat: str, cookie: str) -> None:
        super().__init__(addresses[0], chat, cookie, origin=ORIGIN)
        self.others = [self.url.replace(addresses[0], each) for each in addresses[1:]]
        self.approvals: dict[int, str] = {}
        self.moved = 0

    async def open(self, **more: Any) -> Tab:
        try:
            await super().open(**more)
        except (OSError, websockets.InvalidHandshake, websockets.InvalidMessage, TimeoutError):
            self.others.append(self.url)
            self.url = self.others.pop(0)
            self.moved += 1
            raise
        return self

    def take(self, frame: dict[str, Any]) -> None:
        for each in [*frame.get("approvals", []), *filter(None, [frame.get("approval")])]:
            self.approvals[each["id"]] = each["state"]
        super().take(frame)

    def fault(self, text: str) -> None:
        """Note a broken rule with what came before it on this connection."""
        last = [
            {k: v for k, v in f.items() if k in SHOWN} | {"text": len(f.get("text") or "")}
            for f in self.frames[-14:]
        ]
        super().fault(f"{text} (at {self.url[:25]}, frame {self._n}); last: {last}")

    async def allow(self) -> None:
        """Say yes to every question, as often as it is asked."""
        while True:
            await self.come_back()
            for pk in [pk for pk, state in self.approvals.items() if state == "open"]:
                self.approvals[pk] = "told"
                try:
                    await self.send("approval.answer", approval=pk, answer="once")
                except websockets.ConnectionClosed:
                    break  # the next hello asks again
            await asyncio.sleep(0.05)

    async def told(self, kind: str, seconds: float = 60, **fields: Any) -> dict[str, Any]:
        """Send a command under one id until it is answered; the answer."""
        key = f"k{random.getrandbits(60):x}"
        deadline = time.monotonic() + seconds

        def reply() -> dict[str, Any] | None:
            return next((frame for frame in self.frames if frame.get("ref") == key), None)

        while time.monotonic() < deadline:
            await self.come_back()
            try:
                await self.send(kind, id=key, ref=key, **fields)
            except websockets.ConnectionClosed:
                continue
            await self.until(lambda: reply() or self._reader.done(), deadline - time.monotonic())
            if (found := reply()) is not None:
                return found
        raise TimeoutError(kind)


numbers = itertools.count(1)


@dataclass
class Person:
    """Somebody with one chat, open in a tab at each web process."""

    name: str
    chat: Any
    owner: Any
    speaker: Tab
    watcher: Tab
    said: dict[int, int] = field(default_factory=dict)  # number of what was said: its turn
    done: Counter[str] = field(default_factory=Counter)
    planned: list[Planned] = field(default_factory=list)

    @classmethod
    def make(cls, name: str, addresses: list[str]) -> Person:
        """A person with a chat, whose first tab is at the first of the addresses."""
        owner = facts.allowed_person(name)
        chat = factories.chat(owner)
        cookie = f"{COOKIE}={sign_in(owner).partition('=')[2]}"
        tabs = [Tab(each, str(chat.uid), cookie) for each in (addresses, addresses[::-1])]
        return cls(name, chat, owner, *tabs)

    @property
    def cookie(self) -> str:
        """The header of their login."""
        return self.speaker.cookie

    async def talk(self, number: int, expected: str, padding: str) -> None:
        """Say something until it is answered whole; a lost worker may need it to be asked again."""
        text = f"turn-{number}; of {self.name}. {padding}"
        turn, told = await self.speaker.answered("turn.submit", text=text, seconds=90)
        self.said[number] = turn
        self.done["turns"] += 1
        while told.answer != expected:
            assert told.status == "interrupted", vars(told)
            assert expected.startswith(told.answer), (told.answer, expected)
            self.done["prefixes"] += 1
            _turn, told = await self.speaker.answered("turn.regenerate", turn=turn, seconds=90)
        self.done["equal"] += 1

    async def work(self, what: str) -> None:
        """Ask for background work; the other tab is asked whether it may run."""
        text = f"{what} of {self.name}"
        _turn, told = await self.speaker.answered("turn.submit", text=text, seconds=90)
        assert told.status in {"completed", "interrupted"}, vars(told)
        self.done["asked to work"] += 1

    async def begin_afresh(self) -> None:
        """``/new``."""
        told = await self.speaker.told("turn.submit", text="/new")
        assert (told["type"], told["code"]) == ("notice", "session_new"), told
        self.done["resets"] += 1


async def until(what: Callable[[], Any], seconds: float) -> Any:
    """The first true value of a question to the rows; None if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := await rows(what)()):
        if time.monotonic() > deadline:
            return None
        await asyncio.sleep(0.05)
    return found
