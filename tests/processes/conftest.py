"""A supervisor in this process, and a data folder of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from django.db import connection

from hermes.lib import hints
from processes_app import files, sandbox
from processes_app.supervisor import Supervisor
from sessions_app import endpoints
from tests import states

from .model import ListedModel


@pytest.fixture
def places(tmp_path, settings):
    """Data folder and workspace; whatever was started there is ended afterwards."""
    settings.VAR = tmp_path / "var"
    settings.HERMES_WORKSPACE = str(tmp_path / "workspace")
    settings.HERMES_SANDBOX = settings.HERMES_SANDBOX_ACCEPTED = "none"
    files.root().mkdir(parents=True)
    yield tmp_path
    for path in files.root().iterdir():
        folder = files.Folder(path)
        for known in (folder.child(), folder.shim()):
            if known is not None and known.is_alive():
                os.kill(known.pid, signal.SIGKILL)


class Running:
    """A supervisor on a thread, that can be killed and started again."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            Supervisor().run(self.stop)
        finally:
            connection.close()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def supervisor(places, transactional_db):
    running = Running()
    yield running
    running.end()


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Hints are carried out by the tests themselves; the model answers at once."""
    monkeypatch.setattr(hints, "enqueue", lambda *_: True)
    monkeypatch.setattr(endpoints, "model_for", lambda *_: states.SILENT)


def until(what, seconds: float = 15.0):
    """Wait for something to become true; return it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)
    return found


def levels() -> list[str]:
    return [str(level) for level in sandbox.levels()]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or not files.process_start(pid)


class World:
    """Workers without a broker: hints are kept in a list, and carried out one by one."""

    def __init__(self) -> None:
        self.hints: list[tuple] = []

    def enqueue(self, task, *args) -> bool:
        self.hints.append((task, args))
        return True

    def work(self) -> None:
        """Carry out every hint, and those that they bring."""
        while self.hints:
            task, args = self.hints.pop(0)
            task(*args)

    def until(self, what, seconds: float = 20.0):
        """Work until something is true."""

        def look():
            self.work()
            return what()

        return until(look, seconds)


@pytest.fixture
def world(monkeypatch, _quiet):
    made = World()
    monkeypatch.setattr(hints, "enqueue", made.enqueue)
    for module in ("processes_app.intake.events", "sessions_app.tasks"):
        monkeypatch.setattr(f"{module}.enqueue", made.enqueue)
    return made


@pytest.fixture
def model(monkeypatch, _quiet):
    made = ListedModel()
    monkeypatch.setattr(endpoints, "model_for", lambda *_: made)
    return made
