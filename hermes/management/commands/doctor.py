"""``manage.py doctor``: what is set, what answers, and what to do."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core.checks import run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from redis.backoff import NoBackoff
from redis.retry import Retry

from hermes import env
from processes_app import sandbox

SLOW: float = 0.05  # seconds for one question


class Command(BaseCommand):
    """Print one line a finding; exit code 1 if something has to be done."""

    help = "Tells what is configured, what is reachable, and what to do."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Look at everything; a failure of one part hides no other."""
        self._section("Settings in force")
        for name, declared in sorted(env.DECLARED.items()):
            if declared.source != "default":
                self._line("set", f"{name} = {declared.value} (from {declared.source})")
        self._line("ok", f"everything else has its default; data folder {settings.VAR}")
        self._line("ok", f"Hermes {settings.VERSION}, Python {platform.python_version()}")
        self._section("Parts")
        failed = 0
        for look in (self._database, self._broker, self._web):
            failed += not look()
        self._sandbox()
        self._section("Checks")
        found = run_checks(include_deployment_checks=settings.BEHIND_TLS)
        for message in found:
            serious = message.is_serious()
            failed += serious
            self._line(
                "FIX" if serious else "note", f"{message.msg} {message.hint or ''} ({message.id})"
            )
        if not found:
            self._line("ok", "nothing to say")
        if failed:
            raise CommandError(f"{failed} to be put right.")

    def _section(self, title: str) -> None:
        self.stdout.write(f"\n{title}")

    def _line(self, mark: str, text: str) -> None:
        self.stdout.write(f"  {mark:<4}  {text}")

    def _timed(self, name: str, ask: Callable[[], str]) -> None:
        began = time.monotonic()
        said = ask()
        took = time.monotonic() - began
        self._line("ok" if took < SLOW else "note", f"{name}: {said}, {took * 1000:.0f} ms")

    def _database(self) -> bool:
        if not settings.DATABASE_URL:
            self._line("FIX", "database: none is set or running. Start Hermes: make run")
            return False
        try:
            connection.ensure_connection()
            self._timed("database", _ask_database)
            waiting = MigrationExecutor(connection).migration_plan(
                MigrationExecutor(connection).loader.graph.leaf_nodes()
            )
        except OperationalError as error:
            first = str(error).strip().splitlines()[0]
            self._line("FIX", f"database: does not answer: {first}. Is Hermes (make run) up?")
            return False
        if waiting:
            self._line("FIX", f"database: {len(waiting)} migrations wait: manage.py migrate")
        return not waiting

    def _broker(self) -> bool:
        if not settings.REDIS_URL:
            self._line("FIX", "broker: none is set or running. Start Hermes: make run")
            return False
        client = redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=3,
            socket_connect_timeout=3,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            self._timed("broker", lambda: _ask_broker(client))
            told: Any = client.config_get("maxmemory-policy")
            policy = told.get("maxmemory-policy", "")
        except redis.ResponseError:
            return True  # a hosted server that does not show its configuration
        except redis.RedisError as error:
            self._line("FIX", f"broker: does not answer: {error}")
            return False
        finally:
            client.close()
        if policy not in {"noeviction", ""}:
            self._line("note", f"broker: it may throw away hints ({policy}); noeviction is better")
        return True

    def _sandbox(self) -> None:
        level, refusal = sandbox.active(), sandbox.refusal()
        found = f"sandbox: {level or 'none of that level'} (here: {', '.join(sandbox.levels())})"
        self._line("note" if refusal else "ok", f"{found} {refusal}".strip())

    def _web(self) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.BIND, settings.BIND)  # noqa: S104 - compared, not bound
        connection = HTTPConnection(host, settings.PORT, timeout=5)
        name = urlsplit(settings.HERMES_ORIGINS[0]).netloc
        try:
            connection.request("GET", "/readyz", headers={"Host": name})
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            self._line("FIX", f"web: port {settings.PORT} on {host} does not answer: {error}")
            return False
        finally:
            connection.close()
        self._line("ok" if status == 200 else "FIX", f"web: /readyz answers {status}")
        return status == 200


def _ask_database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return f"PostgreSQL {cursor.fetchone()[0]}"


def _ask_broker(client: redis.Redis) -> str:
    told: Any = client.info("server")
    return (
        f"{told.get('server_name', 'redis')} {told.get('valkey_version') or told['redis_version']}"
    )
