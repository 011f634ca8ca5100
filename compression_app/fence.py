"""The single writer of attempts, cooldowns and compression states: the commit fence.

Every function is one short transaction under the session's lock, so that cancel and commit, hold
and release, are totally ordered by the row. What an attempt leaves behind (outcome, cooldown,
streak, breaker, history) is written in the transaction that ends it, by one table.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

from django.conf import settings
from django.db import transaction

from hermes.lib.chat import Usage
from hermes.lib.db import DbNow, db_now, retrying
from hermes.lib.leases import Lease, Owner
from sessions_app import domain as chats
from sessions_app import transcript
from sessions_app.models import Session

from . import domain
from .domain import AttemptStatus, Commit, CooldownKind, End, Fenced, Reason, Refuse
from .models import CompactionAttempt, CompressionState, Cooldown

logger = logging.getLogger(__name__)

RUNNING_AN_ENDPOINT: Final = 2
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


# --- Opening and claiming -----------------------------------------------------------------------


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
    _record(session, attempt, "", AttemptStatus.QUEUED, reason=facts.trigger)
    return attempt


@dataclass(frozen=True)
class Claimed:
    """An attempt in a worker's hands."""

    attempt: CompactionAttempt
    lease: Lease


@retrying
@transaction.atomic
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
    _record(session, attempt, AttemptStatus.QUEUED, AttemptStatus.RUNNING)
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


# --- The hold -----------------------------------------------------------------------------------


@retrying
@transaction.atomic
def hold(attempt_id: int, turn_id: int, session_id: int) -> float:
    """Hold a turn for an attempt; seconds of the attempt's one budget that are left, or 0."""
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id)
    if attempt.status not in domain.OPEN or attempt.hold_released_at is not None:
        return 0.0
    budget = settings.HERMES_TURN_HOLD_SECONDS
    if attempt.hold_started_at is not None:
        return max(0.0, budget - (db_now() - attempt.hold_started_at).total_seconds())
    CompactionAttempt.objects.amend(
        attempt_id, attempt.status, held_turn_id=turn_id, hold_started_at=DbNow()
    )
    _record(session, attempt, "", "", kind="hold", reason=f"turn {turn_id}")
    transcript.publish(session)
    return float(budget)


class Released(StrEnum):
    """What a hold found at its end."""

    ENDED = "ended"  # committed or not: there is nothing to wait for
    DEFERRED = "deferred"  # it goes on, and keeps the right to commit
    CANCELLED = "cancelled"  # it was not fenced


@retrying
@transaction.atomic
def release(attempt_id: int, session_id: int) -> Released:
    """End the hold of an attempt whose budget is used up; a commit in flight is waited for.

    A fenced attempt goes on, deferred; one that is not is cancelled here and its retry armed.
    """
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id)
    if attempt.status not in domain.OPEN:
        return Released.ENDED
    if attempt.watermark is None:
        close(session, attempt, AttemptStatus.CANCELLED, Reason.HOLD_EXPIRED)
        transcript.publish(session)
        return Released.CANCELLED
    if attempt.hold_released_at is None and attempt.hold_started_at is not None:
        CompactionAttempt.objects.amend(attempt_id, attempt.status, hold_released_at=DbNow())
        _record(session, attempt, "", "", kind="hold", reason="deferred")
        transcript.publish(session)
    return Released.DEFERRED


# --- The commit ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """What a summary model brought, and the draft made of it."""

    draft: transcript.Draft | None
    rejection: Reason | None = None
    usage: Usage | None = None
    detail: str = ""


Verdict: TypeAlias = Fenced | Commit | Refuse


@retrying
@transaction.atomic
def commit(lease: Lease, written: Written) -> Verdict:
    """Publish a summary, or end the attempt with the reason why not; nothing else is possible.

    Run again after a lost connection it looks at the row first: a commit that landed is a commit.
    """
    found = CompactionAttempt.objects.filter(pk=lease.pk).values_list("session", flat=True)
    session_id = found.first()
    if session_id is None:
        return Fenced()
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=lease.pk)
    if attempt.status == AttemptStatus.COMMITTED and attempt.fence_token == lease.token:
        return Commit()
    draft = written.draft
    size = _replaced(session, draft) if draft is not None else 0
    verdict = domain.may_commit(
        domain.Claim(
            status=AttemptStatus(attempt.status),
            token=attempt.fence_token,
            held_token=lease.token,
            is_fenced=attempt.watermark is not None,
            generation=attempt.generation,
            session_generation=session.generation,
            is_session_closed=is_closed(session),
            deadline_at=attempt.deadline_at,
            now=db_now(),
            rejection=written.rejection or (Reason.EMPTY if draft is None else None),
            before=size,
            after=draft.tokens if draft is not None else 0,
        )
    )
    if isinstance(verdict, Fenced):
        logger.warning(
            "compaction fenced",
            extra={"attempt": lease.pk, "token": lease.token, "row_token": attempt.fence_token},
        )
        return verdict
    usage = written.usage or Usage(0, 0)
    attempt.prompt_tokens, attempt.completion_tokens = usage.prompt, usage.completion
    attempt.detail = written.detail
    if isinstance(verdict, Refuse):
        if draft is not None:
            attempt.text = draft.body
        close(session, attempt, verdict.status, verdict.reason)
    elif attempt.wants_preview:
        _keep_preview(session, attempt, draft)
    else:
        _adopt(session, attempt, draft)
    transcript.publish(session)
    return verdict


def _replaced(session: Session, draft: transcript.Draft) -> int:
    """Tokens of what a draft would stand for: the rows it newly covers and the summary before."""
    before = 0 if session.summary is None else session.summary.tokens
    low = transcript.covered_by(session)
    return before + transcript.live_between(session.pk, low, draft.covers_through)[1]


def is_closed(session: Session) -> bool:
    """Whether a person has ended the session; one that the system ended may still be summarised."""
    if session.end_reason is None:
        return False
    return chats.END_CLASS[chats.EndReason(session.end_reason)] is not chats.EndClass.SYSTEM


def _adopt(session: Session, attempt: CompactionAttempt, draft: transcript.Draft | None) -> None:
    if draft is None:
        raise ValueError("a commit needs a draft")
    shrunk = _replaced(session, draft) - draft.tokens
    attempt.after_tokens = max(0, attempt.before_tokens - shrunk)
    made = transcript.apply_summary(
        session,
        draft,
        attempt_id=attempt.pk,
        before=attempt.before_tokens,
        after=attempt.after_tokens,
    )
    attempt.summary_id_made = made.pk
    close(session, attempt, AttemptStatus.COMMITTED, None)


def _keep_preview(
    session: Session, attempt: CompactionAttempt, draft: transcript.Draft | None
) -> None:
    """Keep what was written for a person to look at; nothing else changes until they answer."""
    if draft is None:
        raise ValueError("a preview needs a draft")
    shrunk = _replaced(session, draft) - draft.tokens
    CompactionAttempt.objects.advance(
        attempt.pk,
        AttemptStatus.PREVIEW,
        text=draft.body,
        after_tokens=max(0, attempt.before_tokens - shrunk),
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        **NO_LEASE,
    )
    _record(session, attempt, attempt.status, AttemptStatus.PREVIEW)


@retrying
@transaction.atomic
def apply_preview(attempt_id: int, session_id: int, draft: transcript.Draft) -> Verdict:
    """Adopt a previewed summary, as it is or as a person has changed it; the same checks hold."""
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id, session=session)
    if attempt.status != AttemptStatus.PREVIEW:
        return Fenced()
    if is_closed(session):
        refuse = Refuse(AttemptStatus.SUPERSEDED, Reason.SESSION_ENDED)
    elif attempt.generation != session.generation:
        refuse = Refuse(AttemptStatus.SUPERSEDED, Reason.GENERATION)
    elif draft.tokens >= _replaced(session, draft):
        refuse = Refuse(AttemptStatus.FAILED, Reason.WOULD_GROW)
    else:
        _adopt(session, attempt, draft)
        transcript.publish(session)
        return Commit()
    close(session, attempt, refuse.status, refuse.reason)
    transcript.publish(session)
    return refuse


# --- Ends ---------------------------------------------------------------------------------------


@retrying
@transaction.atomic
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


@retrying
@transaction.atomic
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
        _clear(session, actor="summary")
    if follows.wait is not None:
        _arm(session, attempt, follows.wait, is_deferred=ended.is_deferred, after=retry_after)
    if retry_after is not None:
        _open_provider_breaker(attempt.endpoint_id_used, retry_after)
    _note(state, attempt, follows)
    _record(session, attempt, attempt.status, status, reason=reason or "", actor=actor)
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


def _clear(session: Session, *, actor: str) -> int:
    active = Cooldown.objects.active().filter(session=session)
    return active.update(cleared_at=DbNow(), cleared_by=actor)


def _note(state: CompressionState, attempt: CompactionAttempt, follows: domain.Consequence) -> None:
    if follows.streak is not None:
        state.streak = follows.streak
    if follows.is_effective is not None:
        state.ineffective = 0 if follows.is_effective else state.ineffective + 1
        state.awaited_mark = attempt.mark or None
    if follows.grew is not None:
        state.grew = state.grew + 1 if follows.grew else 0
    state.save(update_fields=["streak", "ineffective", "grew", "awaited_mark"])


def _open_provider_breaker(endpoint_id: int | None, seconds: float) -> None:
    state = state_of_endpoint(endpoint_id)
    until = db_now() + timedelta(seconds=seconds)
    if state.breaker_until is None or state.breaker_until < until:
        state.breaker_until = until
        state.save(update_fields=["breaker_until"])


@retrying
@transaction.atomic
def note_reading(session_id: int, reading: int) -> bool:
    """After a commit: whether the next reading is still above the mark that opened it.

    Such a commit did not help; two in a row open the breaker.
    """
    session = Session.objects.lock(session_id)
    state = state_of(session)
    if state.awaited_mark is None:
        return False
    is_above = reading >= state.awaited_mark
    state.ineffective = state.ineffective + 1 if is_above else 0
    state.awaited_mark = None
    state.save(update_fields=["ineffective", "awaited_mark"])
    return is_above


# --- Operators ----------------------------------------------------------------------------------


@retrying
@transaction.atomic
def clear_cooldowns(session_id: int, *, actor: str, reason: str) -> int:
    """Clear the active cooldowns of a session, for an operator with a reason; how many."""
    session = Session.objects.lock(session_id)
    cleared = _clear(session, actor=actor)
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


def _record(
    session: Session,
    attempt: CompactionAttempt,
    frm: str,
    to: str,
    *,
    kind: str = "attempt",
    reason: str = "",
    actor: str = "",
) -> None:
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
