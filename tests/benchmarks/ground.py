"""What benchmarks stand on: own servers, a migrated database, processes of the product."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hermes.management.servers.embedded import EmbeddedServers
from tests.servers import run_folder


@dataclass
class Ground:
    """A folder to write in, and the environment of processes that use the same servers."""

    folder: Path
    environment: Mapping[str, str]
    ends: ExitStack = field(default_factory=ExitStack)

    def named(self, name: str) -> dict[str, str]:
        """The environment of a process whose database connections carry a name."""
        url = self.environment["DATABASE_URL"]
        mark = "&" if "?" in url else "?"
        return {**self.environment, "DATABASE_URL": f"{url}{mark}application_name={name}"}


@contextmanager
def standing() -> Iterator[Ground]:
    """Servers as ``make run`` starts them, empty and migrated; Django is set up on them."""
    folder = run_folder()
    for name in [name for name in os.environ if name.startswith("HERMES_")]:
        del os.environ[name]
    servers = EmbeddedServers(folder)
    try:
        servers.start()
        own = {
            **servers.environment(),
            "HERMES_VAR": str(folder),
            "HERMES_REDIS_PREFIX": f"hermes-bench-{secrets.token_hex(4)}",
            "DJANGO_SETTINGS_MODULE": "hermes.settings",
            "HERMES_LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
        }
        os.environ.update(own)
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        with ExitStack() as ends:
            yield Ground(folder, dict(os.environ), ends)
    finally:
        from django.db import connection

        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
        servers.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def without_hints() -> Iterator[None]:
    """Nothing is published and nothing pushed: only rows are measured."""
    with (
        mock.patch("hermes.lib.hints.enqueue", return_value=False),
        mock.patch("hermes.lib.hints.push", return_value=None),
    ):
        yield
