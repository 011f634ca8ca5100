"""When news is settled and turns are woken. Safe to deliver twice, late, or never."""

from __future__ import annotations

from celery import shared_task

from hermes.lib.hints import enqueue_when

from . import runner


@shared_task(acks_late=True, reject_on_worker_lost=True)
def deliver(address: str) -> None:
    """Settle the due completions of a chat's address. A second delivery finds none."""
    enqueue_when(runner.deliver(address), deliver, address)


@shared_task(acks_late=True, reject_on_worker_lost=True)
def wake(process_id: int) -> None:
    """Let a turn go on that waits for a process."""
    runner.wake(process_id)


@shared_task(acks_late=True, reject_on_worker_lost=True)
def resume(turn_id: int, key: str) -> None:
    """Let a turn go on that waits for a key."""
    runner.resume(turn_id, key)
