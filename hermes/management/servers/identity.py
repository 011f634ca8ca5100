"""Which process is meant: a pid alone may have been given to another process since.

A process is known by its pid, its start time as the kernel tells it, and the boot of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .files import write_private

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What this boot of the machine is called; empty where the kernel does not tell."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """When process ``pid`` began, in the kernel's own words; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _start_time_from_ps(pid)
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in "ZX" else fields[19]


def _start_time_from_ps(pid: int) -> str | None:
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()


def exists(pid: int) -> bool:
    """True if the kernel still has ``pid``, be it as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def arguments(pid: int) -> list[str]:
    """The command line of ``pid``; empty if it is gone or hidden."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return []
        shown = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return shown.stdout.split()
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


@dataclass(frozen=True)
class Identity:
    """One process, told apart from any later one with the same pid."""

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The identity of the running process ``pid``; None if there is none."""
        started = start_time(pid)
        return None if started is None else cls(pid, started, boot_id())

    @classmethod
    def read(cls, path: Path) -> Identity | None:
        """What ``write`` kept in ``path``; None if it is missing or cannot be read as one."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(kept["pid"]), str(kept["started"]), str(kept["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Keep it in ``path``, whole or not at all."""
        write_private(path, json.dumps(asdict(self)))

    def is_alive(self) -> bool:
        """True while this very process runs."""
        return self.boot == boot_id() and start_time(self.pid) == self.started

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if the process was already gone."""
        if not self.is_alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def wait_gone(self, seconds: float) -> bool:
        """Wait at most ``seconds``; True if the process is gone."""
        deadline = time.monotonic() + seconds
        while self.is_alive():
            # A child of ours stays a zombie until it is reaped.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            if time.monotonic() >= deadline:
                return not self.is_alive()
            time.sleep(0.02)
        return True

    def end(self, first: signal.Signals, seconds: float) -> None:
        """Ask with ``first``, and kill what is still there after ``seconds``."""
        if self.send(first) and not self.wait_gone(seconds):
            self.send(signal.SIGKILL)
            self.wait_gone(5)
