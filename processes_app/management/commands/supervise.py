"""``manage.py supervise``: the process supervisor of this host."""

from __future__ import annotations

import fcntl
import logging
import signal
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from processes_app import sandbox, signals
from processes_app.domain import Policy
from processes_app.supervisor import Supervisor

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Start, follow and end the agent's processes of this host."""

    help = "Supervises the agent's processes on this host; one a host. They outlive it."
    requires_system_checks = []  # the start command has made them

    def handle(self, *args: Any, **options: Any) -> None:
        """Supervise until asked to stop; processes go on."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        folder = Path(settings.VAR) / "run"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "supervise.lock").open("a+", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CommandError("Another supervisor runs on this data folder.") from error
            logger.info(
                "supervising",
                extra={"sandbox": str(sandbox.active()), "refusal": sandbox.refusal() or "none"},
            )
            level = "refused" if sandbox.refusal() else str(sandbox.active())
            level = level if settings.HERMES_COMMANDS != Policy.OFF else "off"
            signals.supervisor_began.send(sender=type(self), level=level)
            Supervisor().run(stop)
