"""What every write of the fence leaves behind, and the states that outlive attempts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from compression_app.models import CompactionAttempt, CompressionState
from sessions_app import domain as chats
from sessions_app import transcript
from sessions_app.models import Session

logger = logging.getLogger(__name__)


NO_LEASE: Final[Mapping[str, Any]] = {
    "lease_owner": "",
    "lease_expires_at": None,
    "stop_asked_at": None,
}


def state_of(session: Session) -> CompressionState:
    """The state of a locked session, locked too; made at first need."""
    CompressionState.objects.get_or_create(scope=f"session:{session.pk}", session=session)
    return CompressionState.objects.select_for_update(no_key=True).get(session=session)


def state_of_endpoint(endpoint_id: int | None) -> CompressionState:
    """The state of a summary endpoint, locked; None is the offline model."""
    scope = f"endpoint:{endpoint_id or 0}"
    CompressionState.objects.get_or_create(scope=scope, endpoint_id_meant=endpoint_id)
    return CompressionState.objects.select_for_update(no_key=True).get(scope=scope)


def is_closed(session: Session) -> bool:
    """Whether a person has ended the session; one that the system ended may still be summarised."""
    if session.end_reason is None:
        return False
    return chats.END_CLASS[chats.EndReason(session.end_reason)] is not chats.EndClass.SYSTEM


def record(
    session: Session,
    attempt: CompactionAttempt,
    frm: str,
    to: str,
    *,
    kind: str = "attempt",
    reason: str = "",
    actor: str = "",
) -> None:
    """Append to the history of an attempt, in the transaction of the fact itself."""
    transcript.record(
        session,
        f"attempt:{attempt.pk}",
        kind,
        frm=frm,
        to=to,
        reason=reason,
        actor=actor,
        token=attempt.fence_token,
    )
