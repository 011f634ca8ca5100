"""The end of an attempt and all that follows from it, in one transaction and by one table."""

from __future__ import annotations

import logging
import random
from datetime import timedelta

from django.conf import settings

from compression_app import domain
from compression_app.domain import (
    AttemptStatus,
    CooldownKind,
    End,
    Reason,
)
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib.db import DbNow, db_now, transacted
from sessions_app import domain as chats
from sessions_app import transcript
from sessions_app.models import Session, Summary

from .rows import NO_LEASE, record, state_of, state_of_endpoint

logger = logging.getLogger(__name__)


def close(
    session: Session,
    attempt: CompactionAttempt,
    status: AttemptStatus,
    reason: Reason | None,
    *,
    retry_after: float | None = None,
    actor: str = "",
    by_person: bool = False,
) -> None:
    """End an attempt of a locked session, with everything that follows; the caller publishes."""
    state = state_of(session)
    ended = End(
        status=status,
        reason=reason,
        is_deferred=attempt.hold_released_at is not None,
        is_fenced=attempt.watermark is not None,
        streak=state.streak,
        before=attempt.before_tokens,
        after=attempt.after_tokens,
        by_person=by_person,
    )
    follows = domain.consequence(
        ended,
        flat=settings.HERMES_TURN_HOLD_RETRY_SECONDS,
        first=settings.HERMES_FAILURE_COOLDOWN_SECONDS,
    )
    landed = CompactionAttempt.objects.advance(
        attempt.pk,
        status,
        frm=[attempt.status],
        when={"fence_token": attempt.fence_token},
        reason=reason or "",
        detail=chats.storable(attempt.detail)[:2000],
        text="" if status is AttemptStatus.COMMITTED else chats.storable(attempt.text),
        after_tokens=attempt.after_tokens,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        summary_id_made=attempt.summary_id_made,
        finished_at=DbNow(),
        **NO_LEASE,
    )
    if not landed:
        raise RuntimeError("an attempt moved although its session is locked")
    if follows.clears:
        clear(session, actor="summary")
    if follows.wait is not None:
        _arm(session, attempt, follows.wait, is_deferred=ended.is_deferred, after=retry_after)
    if retry_after is not None:
        _open_provider_breaker(attempt.endpoint_id_used, retry_after)
    _note(state, attempt, follows)
    record(session, attempt, attempt.status, status, reason=reason or "", actor=actor)
    logger.info(
        "attempt ended",
        extra={"attempt": attempt.pk, "to": str(status), "reason": str(reason or "")},
    )


def _arm(
    session: Session,
    attempt: CompactionAttempt,
    wait: domain.Wait,
    *,
    is_deferred: bool,
    after: float | None,
) -> None:
    """Append a cooldown; only a ladder is jittered, and only it heeds the provider's wish."""
    seconds = wait.seconds
    if wait.kind is CooldownKind.LADDER:
        seconds = domain.jittered(seconds, random.random())  # noqa: S311 - jitter, no secret
        if after is not None and not is_deferred:
            seconds = max(seconds, after)
    if seconds <= 0:
        return
    Cooldown.objects.create(
        session=session,
        attempt=attempt,
        kind=wait.kind,
        reason=wait.reason[:80],
        until=DbNow() + timedelta(seconds=seconds),
    )


def clear(session: Session, *, actor: str) -> int:
    """Clear the active cooldowns of a locked session; how many there were."""
    active = Cooldown.objects.active().filter(session=session)
    return active.update(cleared_at=DbNow(), cleared_by=actor)


def _note(state: CompressionState, attempt: CompactionAttempt, follows: domain.Consequence) -> None:
    if follows.streak is not None:
        state.streak = follows.streak
    if follows.is_effective is not None:
        if state.awaited_mark is not None:
            state.ineffective = 0  # no reading came of the commit before: it counts as one of use
        if follows.is_effective:
            # The next reading may still count it, and then in a row with those before.
            state.ineffective = min(state.ineffective, domain.BREAKER_AT - 1)
            state.awaited_mark = attempt.mark or None
        else:
            _count_ineffective(state)
            state.awaited_mark = None
    if follows.grew is not None:
        state.grew = state.grew + 1 if follows.grew else 0
    state.save(update_fields=["streak", "ineffective", "grew", "awaited_mark", "probe_at"])


def _count_ineffective(state: CompressionState) -> None:
    """One more commit that did not help.

    No cooldown follows a commit, so where this opens the breaker the first probe has to wait too.
    """
    state.ineffective += 1
    if state.ineffective == domain.BREAKER_AT:
        state.probe_at = DbNow()


def _open_provider_breaker(endpoint_id: int | None, seconds: float) -> None:
    state = state_of_endpoint(endpoint_id)
    until = db_now() + timedelta(seconds=seconds)
    if state.breaker_until is None or state.breaker_until < until:
        state.breaker_until = until
        state.save(update_fields=["breaker_until"])


@transacted
def note_reading(session_id: int, reading: int, *, built_on_id: int) -> bool:
    """After a commit: whether the next reading is still above the mark that opened it.

    Such a commit did not help; two in a row open the breaker. Only a request that was built on what
    was committed says so: an answer that was under way before says nothing.
    """
    session = Session.objects.lock(session_id)
    state = state_of(session)
    made = Summary.objects.filter(session=session).order_by("-pk").values_list("pk", flat=True)
    if state.awaited_mark is None or made.first() != built_on_id:
        return False
    is_above = reading >= state.awaited_mark
    if is_above:
        _count_ineffective(state)
    else:
        state.ineffective = 0
    state.awaited_mark = None
    state.save(update_fields=["ineffective", "awaited_mark", "probe_at"])
    transcript.publish(session)  # a breaker that opens or closes is shown
    return is_above
