"""Workers, beat and supervisors tell that they live, from the moment at which they are ready."""

from __future__ import annotations

from typing import Any

from celery import signals
from django.dispatch import receiver

from processes_app.signals import supervisor_began

from . import heartbeats


@signals.worker_ready.connect
def worker_came(sender: Any, **_: Any) -> None:
    """A worker is ready for its queues."""
    heartbeats.begin("worker", list(sender.app.amqp.queues.consume_from))


@signals.beat_init.connect
def beat_came(**_: Any) -> None:
    """The clock of the sweeps is there."""
    heartbeats.begin("beat")


@receiver(supervisor_began)
def supervisor_came(level: str, **_: Any) -> None:
    """Commands are started and followed on this host, at this level of the sandbox."""
    heartbeats.begin("supervisor", [level])
