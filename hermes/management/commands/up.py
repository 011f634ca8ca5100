"""``manage.py up``: everything that Hermes needs, from one command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from hermes import env
from hermes.management.servers.embedded import EmbeddedServers
from hermes.management.servers.files import private_folder
from hermes.management.servers.trouble import CannotStart
from hermes.management.start.console import Console
from hermes.management.start.lock import hold
from hermes.management.start.preparation import Prepared
from hermes.management.start.programs import programs
from hermes.management.start.signals import StopSignals
from hermes.management.start.supervisor import Supervisor

from .prepare import login_line

READY_SECONDS: Final = 60
LOOK_EVERY: Final = 0.25  # seconds


class Command(BaseCommand):
    """Start database, broker, web and workers, and keep them running."""

    help = "Starts everything and keeps it running until Ctrl-C."
    requires_system_checks = []  # they may ask the database, which this command starts

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until asked to stop."""
        console = Console(sys.stdout)
        with StopSignals() as signals:
            try:
                _Run(console, signals).run()
            except CannotStart as error:
                raise CommandError(" ".join(str(error).split())) from error


class _Stopped(Exception):
    """A signal came before everything was up."""


class _Run:
    """One run of the start command."""

    def __init__(self, console: Console, signals: StopSignals) -> None:
        self.console, self.signals = console, signals
        self.var = settings.VAR
        self.run_folder = self.var / "run"
        self.servers = EmbeddedServers(
            self.var,
            database_url=_given("DATABASE_URL"),
            redis_url=_given("REDIS_URL"),
            max_connections=max(100, (settings.PROCESSES + 1) * settings.DB_POOL + 36),
        )

    def run(self) -> None:
        """Start, watch, stop; whatever happens, what was started is ended.

        Raises:
            CannotStart: with what to do.
        """
        private_folder(self.var)
        private_folder(self.run_folder)
        with hold(self.run_folder / "up.lock", _address()):
            supervisor = Supervisor(self.run_folder, self.console)
            try:
                self._start(supervisor)
                while not self.signals.asked():
                    self.signals.wait(LOOK_EVERY)
                    self._look(supervisor)
            except _Stopped:
                pass
            finally:
                self._stop(supervisor)

    # --- start ---------------------------------------------------------------------------------
    def _start(self, supervisor: Supervisor) -> None:
        for name in supervisor.end_leftovers():
            self._say(f"Ended {name}, which an earlier start had left.")
        _refuse_busy_port()
        if os.geteuid() == 0:
            self._say("Running as root. It works; an ordinary user is safer.")
        self._say("Starting the database and the broker.")
        self.servers.start()
        self._go_on()
        supervisor.environment = {**self.servers.environment(), "HERMES_VAR": str(self.var)}
        self._say("Bringing the tables up to date.")
        prepared = self._prepare(supervisor)
        self._go_on()
        self._say("Starting web and workers.")
        supervisor.start(programs())
        self._await_web(supervisor)
        self._welcome(prepared)

    def _go_on(self) -> None:
        if self.signals.asked():
            raise _Stopped

    def _prepare(self, supervisor: Supervisor) -> Prepared:
        """In a process of its own: only there do the settings know the servers."""
        child = subprocess.Popen(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), "prepare", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **supervisor.environment},
        )
        out, said = child.communicate()
        if child.returncode != 0:
            last = " ".join(said.strip().splitlines()[-1:])
            raise CannotStart(last.removeprefix("CommandError: ") or "The preparation failed.")
        for line in said.splitlines():
            self.console.say("prepare", line)
        return Prepared(**json.loads(out.strip().splitlines()[-1]))

    def _await_web(self, supervisor: Supervisor) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not _web_answers():
            self._go_on()
            if (words := supervisor.died("web")) is not None:
                raise CannotStart(f"The web process ended at once: {words}")
            if time.monotonic() >= deadline:
                raise CannotStart(
                    f"The web process does not answer on {_address()} after {READY_SECONDS} s."
                )
            self.signals.wait(0.05)

    def _welcome(self, prepared: Prepared) -> None:
        address = settings.HERMES_ORIGINS[0]
        self.console.write(
            f"\n  Hermes runs at {address}\n"
            f"  Log in as      {login_line(prepared)}\n"
            f"  Add a model    {address}/admin/ → Model endpoints "
            "(until then the built-in offline model answers)\n"
            "  Stop           Ctrl-C\n\n"
        )

    # --- watch and stop --------------------------------------------------------------------------
    def _look(self, supervisor: Supervisor) -> None:
        before = supervisor.environment
        try:
            for name in self.servers.restart_dead():
                self._say(f"{name} had ended; it runs again.")
        except CannotStart as error:
            self._say(f"{error} Trying again.")
            self.signals.wait(2)
        now = {**before, **self.servers.environment()}
        if now != before:  # the broker had to take another port
            supervisor.restart(now)
        else:
            supervisor.look()

    def _stop(self, supervisor: Supervisor) -> None:
        self._say("Stopping.")
        supervisor.stop(self.signals.urgent)
        self.servers.stop()
        self._say("Stopped.")

    def _say(self, line: str) -> None:
        self.console.say("hermes", line)


def _given(name: str) -> str:
    """The URL that a person gave; empty if it is only what an earlier start wrote."""
    source = env.DECLARED[name].source
    return str(getattr(settings, name)) if source in {"environment", "var/hermes.env"} else ""


def _address() -> str:
    host = f"[{settings.BIND}]" if ":" in settings.BIND else settings.BIND
    return f"http://{host}:{settings.PORT}"


def _refuse_busy_port() -> None:
    family = socket.AF_INET6 if ":" in settings.BIND else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.BIND, settings.PORT))
            probe.listen(1)
        except OSError as error:
            raise CannotStart(
                f"Port {settings.PORT} on {settings.BIND} cannot be used ({error.strerror}). "
                f"Stop what listens there, or choose another: HERMES_PORT={settings.PORT + 1}."
            ) from error


def _web_answers() -> bool:
    """True if the web process answers as a browser, or the proxy, would ask."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.BIND, settings.BIND)  # noqa: S104 - compared, not bound
    connection = HTTPConnection(host, settings.PORT, timeout=5)
    headers = {"Host": urlsplit(settings.HERMES_ORIGINS[0]).netloc, "X-Forwarded-Proto": "https"}
    try:
        connection.request("GET", "/healthz", headers=headers)
        connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True
