"""The commit: a summary becomes the session's, or its attempt ends with the reason why not."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeAlias, cast

from compression_app import domain
from compression_app.domain import (
    AttemptStatus,
    Commit,
    Fenced,
    Reason,
    Refuse,
)
from compression_app.models import CompactionAttempt
from hermes.lib.chat import Usage
from hermes.lib.db import db_now, transacted
from hermes.lib.leases import Lease
from sessions_app import transcript
from sessions_app.models import Session

from .consequences import close
from .rows import NO_LEASE, is_closed, record

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """What a summary model brought, and the draft made of it."""

    draft: transcript.Draft | None
    rejection: Reason | None = None
    usage: Usage | None = None
    detail: str = ""


Verdict: TypeAlias = Fenced | Commit | Refuse


@transacted
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
    # Without a draft the verdict is a refusal: from here on there is one.
    elif attempt.wants_preview:
        _keep_preview(session, attempt, cast(transcript.Draft, draft))
    else:
        _adopt(session, attempt, cast(transcript.Draft, draft))
    transcript.publish(session)
    return verdict


def _replaced(session: Session, draft: transcript.Draft) -> int:
    """Tokens of what a draft would stand for: the rows it newly covers and the summary before."""
    before = 0 if session.summary is None else session.summary.tokens
    low = transcript.covered_by(session)
    return before + transcript.live_between(session.pk, low, draft.covers_through)[1]


def _adopt(session: Session, attempt: CompactionAttempt, draft: transcript.Draft) -> None:
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


def _keep_preview(session: Session, attempt: CompactionAttempt, draft: transcript.Draft) -> None:
    """Keep what was written for a person to look at; nothing else changes until they answer."""
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
    record(session, attempt, attempt.status, AttemptStatus.PREVIEW)


@transacted
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
