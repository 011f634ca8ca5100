"""Attempts opened and claimed, and what their worker notes meanwhile."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.conf import settings

from compression_app import domain
from compression_app.domain import (
    AttemptStatus,
)
from compression_app.models import CompactionAttempt, CompressionState
from hermes.lib.db import DbNow, transacted
from hermes.lib.leases import Lease, Owner
from sessions_app import transcript
from sessions_app.models import Session

from .rows import record, state_of_endpoint

logger = logging.getLogger(__name__)


RUNNING_AN_ENDPOINT: Final = 2


def open_attempt(
    session: Session, state: CompressionState, facts: domain.Facts, **columns: Any
) -> CompactionAttempt:
    """Open an attempt in a locked session; the caller has judged that it may, and publishes.

    Watermark, cut and generation are those of this transaction: the attempt is fenced from here.
    """
    is_tripped = max(state.ineffective, state.grew) >= domain.BREAKER_AT
    if is_tripped and facts.trigger in domain.AUTOMATIC:
        state.probe_at = DbNow()
        state.save(update_fields=["probe_at"])
    attempt = CompactionAttempt.objects.create(
        session=session,
        trigger=facts.trigger,
        generation=session.generation,
        watermark=session.last_seq,
        mark=facts.mark,
        before_tokens=facts.size,
        previous_id_seen=session.summary_id,
        **columns,
    )
    record(session, attempt, "", AttemptStatus.QUEUED, reason=facts.trigger)
    return attempt


@dataclass(frozen=True)
class Claimed:
    """An attempt in a worker's hands."""

    attempt: CompactionAttempt
    lease: Lease


@transacted
def claim(attempt_id: int, *, endpoint_id: int | None, model_name: str) -> Claimed | None:
    """Take a queued attempt, or None if it is not to be had or its endpoint is busy enough."""
    found = CompactionAttempt.objects.filter(pk=attempt_id).values_list("session", flat=True)
    session_id = found.first()
    if session_id is None:
        return None
    session = Session.objects.lock(session_id)
    state_of_endpoint(endpoint_id)  # its lock makes the count below hold
    running = CompactionAttempt.objects.filter(
        status=AttemptStatus.RUNNING, endpoint_id_used=endpoint_id
    )
    if running.count() >= RUNNING_AN_ENDPOINT:
        return None
    ceiling = timedelta(seconds=settings.HERMES_COMPACTION_CEILING_SECONDS)
    lease = CompactionAttempt.objects.claim(
        attempt_id,
        AttemptStatus.RUNNING,
        ttl=CompactionAttempt.LEASE.ttl,
        owner=Owner.me(),
        claimed_at=DbNow(),
        deadline_at=DbNow() + ceiling,
        endpoint_id_used=endpoint_id,
        model_name=model_name[:200],
    )
    if lease is None:
        return None
    attempt = CompactionAttempt.objects.select_related("session__summary").get(pk=attempt_id)
    record(session, attempt, AttemptStatus.QUEUED, AttemptStatus.RUNNING)
    transcript.publish(session)
    return Claimed(attempt, lease)


def progress(lease: Lease, count: int) -> bool:
    """Note how much was parsed so far; one row by key and token. False: not ours any more."""
    return CompactionAttempt.objects.amend(
        lease.pk,
        AttemptStatus.RUNNING,
        when={"fence_token": lease.token},
        progress=count,
        progress_at=DbNow(),
    )


def lower_cut(lease: Lease, cut: int, *, before_tokens: int) -> bool:
    """Lower the cut to the last row that the model is really given; it never rises."""
    rows = CompactionAttempt.objects.filter(
        pk=lease.pk, status=AttemptStatus.RUNNING, fence_token=lease.token, cut__gte=cut
    )
    return rows.update(cut=cut, before_tokens=before_tokens) == 1
