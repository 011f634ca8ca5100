"""Real web processes and workers on the test database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from hermes.lib.db import DbNow
from hermes.management.start.programs import MAX_FRAME_BYTES
from sessions_app.models import Turn
from tests import factories
from tests.conftest import environment_of_processes

APPLICATION = "socket-tests"
BASE = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rows(function):
    """A function on rows, to be awaited; its connection is given back."""
    return database_sync_to_async(function)


def someone(name: str = ""):
    """A person's new chat, and the cookie header of their login."""
    owner = factories.person(name)
    return factories.chat(owner), sign_in(owner)


def sign_in(user) -> str:
    """A login session of this person; the cookie header for it."""
    store = SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.save()
    return f"{settings.SESSION_COOKIE_NAME}={store.session_key}"


class Process:
    """One process of the product, which can be killed and started again."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.command, self.environment, self.log = command, dict(environment), log
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=BASE, env=self.environment, stdout=out, stderr=out
            )

    def signal(self, which: int) -> None:
        assert self.process is not None
        self.process.send_signal(which)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, seconds: float = 12) -> float:
        """End it as an operator would; the seconds that it took."""
        began = time.monotonic()
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return time.monotonic() - began

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Web(Process):
    """A web process; ``address`` is where its sockets are."""

    def __init__(self, environment: Mapping[str, str], log: Path, port: int = 0) -> None:
        self.port = port or free_port()
        words = [
            *("-m", "daphne", "-b", "127.0.0.1", "-p", str(self.port), "-v", "0"),
            *("--websocket-max-message-size", str(MAX_FRAME_BYTES)),
            *("--websocket-max-frame-size", str(MAX_FRAME_BYTES)),
            *("--ping-interval", "20", "--ping-timeout", "20", "--websocket_timeout", "-1"),
            *("--websocket_connect_timeout", "5", "--application-close-timeout", "5"),
            *("--http-timeout", "60", "--no-server-name", "hermes.asgi:application"),
        ]
        origins = {"HERMES_PORT": str(self.port), "ASGI_THREADS": "8"}
        super().__init__([sys.executable, *words], {**environment, **origins}, log)
        self.address = f"ws://127.0.0.1:{self.port}"

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/no-such-page", timeout=2)
            except urllib.error.HTTPError:
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(self.text()) from None
                time.sleep(0.05)


class Worker(Process):
    """A worker process for turns."""

    def __init__(self, environment: Mapping[str, str], log: Path, threads: int = 16) -> None:
        words = [
            *("-m", "celery", "-q", "-A", "hermes", "worker", "-P", "threads"),
            *("-c", str(threads), "-Q", "turns,background", "-n", f"turns{free_port()}@%h"),
            *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            "--without-heartbeat",
        ]
        super().__init__([sys.executable, *words], environment, log)


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    # By this name their connections are told from those of the tests.
    url = f"{base['DATABASE_URL']}?application_name={APPLICATION}"
    return {**base, "DATABASE_URL": url, "HERMES_SWEEP_SECONDS": "1"}


@pytest.fixture
def socket_environment(transactional_db, process_environment) -> dict[str, str]:
    """The environment of processes that a test starts for itself."""
    return _environment(process_environment)


@pytest.fixture
def processes(transactional_db, _standing) -> Iterator[list[Process]]:
    """Processes of a test's own, ended with it. No other worker takes their work meanwhile."""
    if (standing := _standing.pop("worker", None)) is not None:
        _end([standing])
    made: list[Process] = []
    yield made
    _end(made)


def _end(made: list[Process]) -> None:
    for process in made:
        with suppress(subprocess.TimeoutExpired):
            process.stop()
        if os.environ.get("HERMES_TEST_SHOW"):
            print(process.text()[-4000:])


@pytest.fixture
def own_web(socket_environment, processes, tmp_path) -> Web:
    """A web process of the test's own, to be killed."""
    made = Web(socket_environment, tmp_path / "web.log")
    processes.append(made)
    made.start()
    return made


@pytest.fixture
def own_worker(socket_environment, processes, tmp_path) -> Worker:
    """A worker of the test's own, to be killed."""
    made = Worker(socket_environment, tmp_path / "worker.log")
    processes.append(made)
    made.start()
    return made


@pytest.fixture(scope="module")
def standing_environment(django_db_setup, tmp_path_factory) -> dict[str, str]:
    """The environment of the processes that stand for one module of tests."""
    folder = tmp_path_factory.mktemp("standing")
    return _environment(environment_of_processes(folder))


@pytest.fixture(scope="module")
def _standing(standing_environment, tmp_path_factory) -> Iterator[dict[str, Process]]:
    # No longer than the module: a worker would take the turns of any other test.
    made: dict[str, Process] = {}
    yield made
    _end(list(made.values()))


@pytest.fixture
def web(transactional_db, _standing, standing_environment, tmp_path_factory) -> Web:
    """A web process; it stands for its module and is not to be harmed."""
    if "web" not in _standing:
        _standing["web"] = Web(standing_environment, tmp_path_factory.mktemp("web") / "log")
        _standing["web"].start()
    return _standing["web"]


@pytest.fixture
def worker(transactional_db, _standing, standing_environment, tmp_path_factory) -> Iterator[Worker]:
    """A worker; it stands for its module and is not to be harmed."""
    if "worker" not in _standing:
        _standing["worker"] = Worker(
            standing_environment, tmp_path_factory.mktemp("worker") / "log"
        )
        _standing["worker"].start()
    yield _standing["worker"]
    # What still runs would write rows into the next test.
    Turn.objects.filter(status__in=["queued", "running", "waiting"]).update(stop_asked_at=DbNow())
    deadline = time.monotonic() + 10
    while Turn.objects.filter(status="running").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
