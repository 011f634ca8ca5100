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

from hermes.management.start.programs import MAX_FRAME_BYTES
from tests import factories

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


@pytest.fixture
def socket_environment(transactional_db, process_environment) -> dict[str, str]:
    """The environment of our processes in these tests."""
    # By this name their connections are told from those of the tests.
    url = f"{process_environment['DATABASE_URL']}?application_name={APPLICATION}"
    return {**process_environment, "DATABASE_URL": url, "HERMES_SWEEP_SECONDS": "1"}


@pytest.fixture
def processes(socket_environment, tmp_path) -> Iterator[list[Process]]:
    """Processes to be ended with the test."""
    made: list[Process] = []
    yield made
    for process in made:
        with suppress(subprocess.TimeoutExpired):
            process.stop()
    if os.environ.get("HERMES_TEST_SHOW"):
        for process in made:
            print(process.text()[-4000:])


@pytest.fixture
def web(socket_environment, processes, tmp_path) -> Web:
    """A running web process."""
    made = Web(socket_environment, tmp_path / "web.log")
    processes.append(made)
    made.start()
    return made


@pytest.fixture
def worker(socket_environment, processes, tmp_path) -> Worker:
    """A running worker."""
    made = Worker(socket_environment, tmp_path / "worker.log")
    processes.append(made)
    made.start()
    return made
