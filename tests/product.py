"""The whole product as real processes, for tests that need it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hermes import env
from hermes.management.servers.embedded import EmbeddedServers
from hermes.management.servers.identity import Identity
from tests.servers import end_product

PROGRAMS = ("web", "beat", "supervisor", "turns", "background")


class Up:
    """One start command as a real process, on a data folder of its own."""

    def __init__(self, var: Path, port: int, **settings: str) -> None:
        self.var, self.port, self.settings = var, port, settings
        self.lines: list[str] = []

    def start(self) -> Up:
        """Start it; ``until_up`` waits for the page."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HERMES_") and name not in {"DATABASE_URL", "REDIS_URL"}
        }
        self.process = subprocess.Popen(
            [sys.executable, str(env.BASE / "manage.py"), "up"],
            env={**kept, "HERMES_VAR": str(self.var), "HERMES_PORT": str(self.port)}
            | self.settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines.extend(self.process.stdout)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return "".join(self.lines)

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        """Wait until ``what()`` is true; fail, with the output, when it takes longer or ends."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.05)

    def until_up(self) -> Up:
        """Wait until it has said that it runs."""
        self.until(lambda: "Ctrl-C" in self.output)
        return self

    def status(self) -> int:
        """The HTTP status of a page."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}/admin/login/", timeout=10) as answer:
            return int(answer.status)

    def identities(self) -> dict[str, Identity | None]:
        """Its programs by name."""
        return {name: Identity.read(self.var / "run" / f"{name}.json") for name in PROGRAMS}

    def servers(self) -> EmbeddedServers:
        """The embedded servers of its data folder, running or not."""
        return EmbeddedServers(self.var)

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(seconds)
        self.reader.join(5)
        return code

    def end(self) -> None:
        """End it and whatever it left, the hard way."""
        if hasattr(self, "process") and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
            self.reader.join(5)
        end_product(self.var)
