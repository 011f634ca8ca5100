"""What operators change: cooldowns cleared, compaction paused."""

from __future__ import annotations

import logging

from django.db import transaction

from compression_app.models import CompressionState
from hermes.lib.db import DbNow, transacted
from sessions_app import transcript
from sessions_app.models import Session

from .consequences import clear

logger = logging.getLogger(__name__)


@transacted
def clear_cooldowns(session_id: int, *, actor: str, reason: str) -> int:
    """Clear the active cooldowns of a session, for an operator with a reason; how many."""
    session = Session.objects.lock(session_id)
    cleared = clear(session, actor=actor)
    transcript.record(
        session,
        f"session:{session.pk}",
        "cooldown",
        to="cleared",
        reason=reason,
        actor=actor,
        count=cleared,
    )
    transcript.publish(session)
    return cleared


@transaction.atomic
def set_paused(scope: str, *, paused: bool, actor: str) -> None:
    """Pause or resume automatic compaction everywhere, or of one endpoint."""
    CompressionState.objects.get_or_create(scope=scope)
    CompressionState.objects.filter(scope=scope).update(
        paused_at=DbNow() if paused else None, paused_by=actor if paused else ""
    )
