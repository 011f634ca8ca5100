"""Both servers together, and the file by which other commands find them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .files import private_folder, write_private
from .postgres import Postgres
from .valkey import Valkey


@dataclass
class EmbeddedServers:
    """The servers that this data folder needs: those for which no URL is given."""

    var: Path
    database_url: str = ""  # of a server of one's own; empty: embedded
    redis_url: str = ""
    max_connections: int = 100
    for_tests: bool = False  # fast and forgetful: a crash of the machine may lose data
    env_file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.env_file = self.var / "embedded.env"
        self.postgres: Postgres | None = None
        self.valkey: Valkey | None = None
        if not self.database_url:
            self.postgres = Postgres(
                self.var / "postgres",
                max_connections=self.max_connections,
                may_create_databases=self.for_tests,
                options={"fsync": "off", "full_page_writes": "off"} if self.for_tests else {},
            )
        if not self.redis_url:
            self.valkey = Valkey(
                self.var / "valkey", options={"appendfsync": "no"} if self.for_tests else {}
            )

    def start(self) -> None:
        """Start or adopt both, at once; afterwards both answer and ``embedded.env`` is true.

        Raises:
            CannotStart: with what to do; what had started is stopped.
        """
        private_folder(self.var)
        servers = [server for server in (self.postgres, self.valkey) if server]
        with ThreadPoolExecutor(max_workers=2) as pool:
            starts = [pool.submit(server.start) for server in servers]
        try:
            for start in starts:
                start.result()
        except BaseException:
            self.stop()
            raise
        self._write_env_file()

    def _write_env_file(self) -> None:
        urls = self.environment()
        embedded = {
            **({"DATABASE_URL": urls["DATABASE_URL"]} if self.postgres else {}),
            **({"REDIS_URL": urls["REDIS_URL"]} if self.valkey else {}),
        }
        write_private(
            self.env_file,
            "# The embedded servers while they run; written by each start.\n"
            + "".join(f"{name}={value}\n" for name, value in embedded.items()),
        )

    def restart_dead(self) -> list[str]:
        """Start again whichever embedded server has died; return their names.

        Raises:
            CannotStart: with what to do.
        """
        started = []
        for name, server in (("The database", self.postgres), ("The broker", self.valkey)):
            if server and server.identity() is None:
                server.start()
                started.append(name)
        if started:
            self._write_env_file()
        return started

    def environment(self) -> Mapping[str, str]:
        """``DATABASE_URL`` and ``REDIS_URL`` for every process of ours."""
        return {
            "DATABASE_URL": self.postgres.url if self.postgres else self.database_url,
            "REDIS_URL": self.valkey.url if self.valkey else self.redis_url,
        }

    def stop(self) -> None:
        """Stop the embedded servers, the broker first; they are gone afterwards."""
        self.env_file.unlink(missing_ok=True)
        if self.valkey:
            self.valkey.stop()
        if self.postgres:
            self.postgres.stop()
