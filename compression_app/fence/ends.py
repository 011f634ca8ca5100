"""Attempts that end without a commit: failed, cancelled, superseded, lost."""

from __future__ import annotations

import logging

from compression_app import domain
from compression_app.domain import (
    AttemptStatus,
    Reason,
)
from compression_app.models import CompactionAttempt
from hermes.lib.chat import Usage
from hermes.lib.db import transacted
from hermes.lib.leases import Lease
from sessions_app import transcript
from sessions_app.models import Session

from .consequences import close

logger = logging.getLogger(__name__)


@transacted
def fail(
    lease: Lease,
    reason: Reason,
    *,
    detail: str = "",
    usage: Usage | None = None,
    retry_after: float | None = None,
    status: AttemptStatus = AttemptStatus.FAILED,
) -> bool:
    """End an attempt that its worker holds; False if it is not ours any more."""
    session_id = CompactionAttempt.objects.values_list("session", flat=True).get(pk=lease.pk)
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=lease.pk)
    if attempt.status != AttemptStatus.RUNNING or attempt.fence_token != lease.token:
        return False
    counted = usage or Usage(0, 0)
    attempt.prompt_tokens, attempt.completion_tokens = counted.prompt, counted.completion
    attempt.detail = detail
    close(session, attempt, status, reason, retry_after=retry_after)
    transcript.publish(session)
    return True


@transacted
def end(
    attempt_id: int,
    session_id: int,
    status: AttemptStatus,
    reason: Reason,
    *,
    token: int | None = None,
    actor: str = "",
    by_person: bool = False,
) -> bool:
    """End an attempt from outside (cancel, lose, supersede); False if it has ended already."""
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id)
    if attempt.status not in domain.UNFINISHED or token not in {None, attempt.fence_token}:
        return False
    close(session, attempt, status, reason, actor=actor, by_person=by_person)
    transcript.publish(session)
    return True
