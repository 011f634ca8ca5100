"""Keeps programs running: starts them, starts again what dies, and ends them in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from hermes.management.servers.files import private_folder
from hermes.management.servers.identity import Identity

from .console import Console, Tail
from .programs import Program

FIRST_PAUSE: Final = 0.5  # seconds before a program that died is started again; doubles
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 30.0  # a program that ran for so long begins again with the first pause


@dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes] | None = None
    tail: Tail | None = None
    started_at: float = 0.0  # time.monotonic()
    start_at: float = 0.0
    pause: float = FIRST_PAUSE

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Supervisor:
    """The running programs. Each has a file with its identity under ``folder`` while it runs."""

    folder: Path
    console: Console
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._children: list[_Child] = []
        private_folder(self.folder)

    def end_leftovers(self) -> list[str]:
        """End the programs that a killed start command left; return their names."""
        ended = []
        for file in sorted(self.folder.glob("*.json")):
            left = Identity.read(file)
            if left is not None and left.send(signal.SIGTERM):
                ended.append((file.stem, left))
        for _, left in ended:
            left.end(signal.SIGTERM, 8)
        for file in self.folder.glob("*.json"):
            file.unlink()
        return [name for name, _ in ended]

    def start(self, programs: Sequence[Program]) -> None:
        """Start all; from now on ``look`` keeps them running."""
        for program in programs:
            child = _Child(program)
            self._children.append(child)
            self._launch(child)

    def _launch(self, child: _Child) -> None:
        program = child.program
        child.process = subprocess.Popen(
            program.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # In a session of its own: Ctrl-C in the terminal is for the start command alone.
            start_new_session=True,
            env={**os.environ, **self.environment, **program.environment, "PYTHONUNBUFFERED": "1"},
        )
        child.started_at = time.monotonic()
        child.tail = self.console.follow(program.name, cast("IO[bytes]", child.process.stdout))
        if (identity := Identity.of(child.process.pid)) is not None:
            identity.write(self._file(child))

    def _file(self, child: _Child) -> Path:
        return self.folder / f"{child.program.name}.json"

    def died(self, name: str) -> str | None:
        """The last words of program ``name`` if it is not running; None while it runs."""
        for child in self._children:
            if child.program.name == name and not child.runs():
                if child.tail:
                    child.tail.finish()
                    return " / ".join(list(child.tail.last)[-3:]) or "it said nothing"
                return "it was not started"
        return None

    def look(self) -> None:
        """Start again what has died, after a pause that grows while it keeps dying."""
        now = time.monotonic()
        for child in self._children:
            if child.process is None:
                if now >= child.start_at:
                    self._launch(child)
            elif (code := child.process.poll()) is not None:
                if now - child.started_at >= STEADY:
                    child.pause = FIRST_PAUSE
                self.console.say(
                    "hermes",
                    f"{child.program.name} ended ({_how(code)}); starting it again "
                    f"in {child.pause:g} s.",
                )
                child.process, child.start_at = None, now + child.pause
                child.pause = min(child.pause * 2, LONGEST_PAUSE)
                self._file(child).unlink(missing_ok=True)

    def restart(self, environment: Mapping[str, str]) -> None:
        """Start every program again, with another environment."""
        programs = [child.program for child in self._children]
        self.stop(lambda: False)
        self.environment = environment
        self.start(programs)

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """End all in order, each within its time; at once when ``is_urgent`` says so.

        The first program is asked and waited for before the others are asked.
        """
        first, others = self._children[:1], self._children[1:]
        for group in (first, others):
            for child in group:
                if child.runs():
                    self._signal(child, signal.SIGTERM)
            asked = time.monotonic()
            for child in group:
                self._wait(child, asked + child.program.stop_seconds, is_urgent)
        self._children.clear()

    def _wait(self, child: _Child, deadline: float, is_urgent: Callable[[], bool]) -> None:
        while child.runs():
            if is_urgent() or time.monotonic() >= deadline:
                if not is_urgent():
                    self.console.say("hermes", f"{child.program.name} did not leave; killing it.")
                self._signal(child, signal.SIGKILL)
            time.sleep(0.02)
        if child.tail:
            child.tail.finish()
        self._file(child).unlink(missing_ok=True)

    @staticmethod
    def _signal(child: _Child, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if child.process is not None:
                if number is signal.SIGKILL:
                    os.killpg(child.process.pid, number)  # with whatever it started
                else:
                    child.process.send_signal(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
