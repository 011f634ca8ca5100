"""When a turn runs. Safe to deliver twice, late, or never."""

from __future__ import annotations

from celery import shared_task

from hermes.lib.hints import enqueue, enqueue_when

from . import runner


@shared_task(acks_late=True, reject_on_worker_lost=True)
def run_turns(session_id: int) -> None:
    """Run the queued turns of a session. A second delivery finds nothing to claim."""
    enqueue_when(runner.run_turns(session_id), run_turns, session_id)


def hint_turns(session_id: int) -> None:
    """Hint that a session has something to run."""
    enqueue(run_turns, session_id)
