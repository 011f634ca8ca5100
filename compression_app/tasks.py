"""When an attempt runs. Safe to deliver twice, late, or never."""

from __future__ import annotations

from celery import shared_task

from . import runner


@shared_task(acks_late=True, reject_on_worker_lost=True)
def run_attempt(attempt_id: int) -> None:
    """Run one compaction attempt. A second delivery finds nothing to claim."""
    runner.run_attempt(attempt_id)
