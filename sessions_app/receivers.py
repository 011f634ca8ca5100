"""What happens when a worker comes and goes: one call each."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from celery import signals
from django.conf import settings
from django.db import DatabaseError, connection

from hermes.lib.hints import enqueue
from hermes.lib.leases import renewer

from . import sweeps, tasks

logger = logging.getLogger(__name__)


@signals.worker_ready.connect
def begin_sweeping(**_: Any) -> None:
    """Recover at once, then sweep from this process too: no beat has to be there."""
    renewer.stay()
    threading.Thread(target=_sweep_for_ever, name="sweeper", daemon=True).start()


@signals.worker_shutting_down.connect
def hand_back(**_: Any) -> None:
    """Wake every turn of this process: save, hand back, leave."""
    renewer.leave()


def _sweep_for_ever() -> None:
    force = True
    while True:
        try:
            for session_id in sweeps.sweep(force=force):
                enqueue(tasks.run_turns, session_id)
            force = False
        except DatabaseError as error:
            logger.warning("sweep failed", extra={"cause": str(error)})
        except Exception:
            logger.exception("sweep failed")
        finally:
            connection.close()
        time.sleep(settings.HERMES_SWEEP_SECONDS)
