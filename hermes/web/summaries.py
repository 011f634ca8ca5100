"""What a session's page knows of its summaries, drawn from rows: pill, preview, notices.

Nothing is remembered between two looks, so that a page that was told every change and one that is
opened afresh show the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from compression_app import domain, outlook
from compression_app.domain import AttemptStatus, Reason, Trigger
from compression_app.models import CompactionAttempt, Cooldown
from sessions_app import transcript
from sessions_app.domain import TurnStatus
from sessions_app.models import Session, Summary, Turn

from . import words
from .templatetags.chat import moment_words, tokens

_ENDED: Final = (
    TurnStatus.COMPLETED,
    TurnStatus.CANCELLED,
    TurnStatus.INTERRUPTED,
    TurnStatus.FAILED,
)
NOTHING: Final[Mapping[str, Any]] = {
    "attempt": None,
    "state": "none",
    "phase": "none",
    "reason": "",
    "trigger": "",
    "progress": 0,
    "before": 0,
    "after": 0,
    "retry_at": None,
    "since": None,
    "until": None,
    "summary": None,
}


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


# --- The pill -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How summarising stands in a session at one moment."""

    session: Session
    window: int
    attempt: CompactionAttempt | None
    retry_at: datetime | None  # when an automatic attempt may be opened again
    blocked: Reason | None  # what keeps a session that is due from being summarised by itself
    due_at: int  # tokens from which on it is due
    is_over: bool = False  # … and it is above the hard mark

    @property
    def pill(self) -> dict[str, Any]:
        """What ``compaction.update`` says of it, apart from the time that has passed."""
        shown = _attempt_pill(self) if self.attempt is not None else None
        if shown is None and self.blocked is not None:
            shown = {**NOTHING, "state": "blocked", "phase": "ended", "reason": self.blocked}
        return dict(NOTHING) if shown is None else {**shown, "retry_at": _time(self.retry_at)}


def standing(session: Session, window: int) -> Standing:
    """How summarising stands, read anew."""
    attempt = outlook.newest(session.pk)
    active = Cooldown.objects.active().filter(session=session)
    retry_at = active.aggregate(until=Max("until"))["until"]
    blocked, is_over = None, False
    size = transcript.context_tokens(session)
    soft = domain.mark(window, settings.HERMES_SOFT_MARK)
    hard = domain.mark(window, settings.HERMES_HARD_MARK)
    due_at = min(soft, hard)
    is_many = session.live_count >= settings.HERMES_MESSAGE_LIMIT
    is_busy = attempt is not None and attempt.status in domain.OPEN
    if not is_busy and is_due(session, due_at):
        is_over = size >= hard or is_many
        facts, _reach, reason = outlook.judged(
            session, Trigger.HARD if is_over else Trigger.SOFT, window
        )
        blocked = reason if reason in outlook.BLOCKING else None
        if blocked is Reason.PROVIDER_BREAKER:
            retry_at = max(filter(None, (retry_at, facts.provider_until)))
    return Standing(session, window, attempt, retry_at, blocked, due_at, is_over)


def is_due(session: Session, due_at: int) -> bool:
    """Whether a session has so many tokens, or so many messages, that it should be summarised."""
    is_many = session.live_count >= settings.HERMES_MESSAGE_LIMIT
    return is_many or transcript.context_tokens(session) >= due_at


def _attempt_pill(it: Standing) -> dict[str, Any] | None:
    """The pill of the newest attempt; None where it has nothing to say any more."""
    attempt = it.attempt
    if attempt is None:
        return None
    since = attempt.claimed_at or attempt.opened_at
    told: dict[str, Any] = {
        **NOTHING,
        "attempt": attempt.pk,
        "state": str(attempt.status),
        "reason": attempt.reason,
        "trigger": attempt.trigger,
        "progress": attempt.progress,
        "before": attempt.before_tokens,
        "after": attempt.after_tokens,
        "since": _time(since),
        "summary": attempt.summary_id_made,
    }
    if attempt.status in domain.OPEN:
        if attempt.hold_released_at is not None:
            return {**told, "phase": "deferred"}
        if attempt.hold_started_at is not None:
            until = attempt.hold_started_at + hold_budget()
            start = _time(attempt.hold_started_at)
            return {**told, "phase": "held", "since": start, "until": _time(until)}
        phase = "queued" if attempt.status == AttemptStatus.QUEUED else "thinking"
        return {**told, "phase": phase}
    if attempt.status == AttemptStatus.PREVIEW:
        return {**told, "phase": "preview"}
    told |= {"phase": "ended", "since": _time(attempt.finished_at)}
    ended_at = attempt.finished_at
    if attempt.status == AttemptStatus.COMMITTED:
        if attempt.summary_id_made != it.session.summary_id:
            made = Summary.objects.filter(pk=attempt.summary_id_made or 0)
            found = made.defer("text", "body", "parts").first()
            if found is None or found.reverted_at is None:
                return None  # the conversation was taken back beyond it
            ended_at = found.reverted_at
            told |= {"state": "undone", "before": attempt.after_tokens, "since": _time(ended_at)}
            told["after"] = attempt.before_tokens
    elif it.retry_at is not None and attempt.status != AttemptStatus.CANCELLED:
        return told
    return None if _was_answered_since(it.session, ended_at) else told


def held_until(session_id: int, turn_id: int) -> datetime | None:
    """Until when a turn may be held for the attempt that is open, or None."""
    held = CompactionAttempt.objects.open().filter(session_id=session_id, held_turn_id=turn_id)
    began = held.filter(hold_released_at=None).values_list("hold_started_at", flat=True).first()
    return None if began is None else began + hold_budget()


def hold_budget() -> timedelta:
    """For how long an attempt may hold turns."""
    return timedelta(seconds=settings.HERMES_TURN_HOLD_SECONDS)


def _was_answered_since(session: Session, at: datetime | None) -> bool:
    """Whether a turn that began after a moment has ended: then its news is old."""
    ended = Turn.objects.filter(
        session=session, started_at__isnull=False, status__in=_ENDED
    ).order_by("-changed")
    last = ended.values_list("started_at", flat=True).first()
    return last is not None and at is not None and last > at


def elapsed(pill: Mapping[str, Any]) -> float | None:
    """Seconds since an attempt was taken up, while it runs."""
    if pill["state"] not in domain.OPEN or pill["since"] is None:
        return None
    passed = timezone.now() - datetime.fromisoformat(pill["since"])
    return round(max(0.0, passed.total_seconds()), 1)


# --- Preview ------------------------------------------------------------------------------------


def preview(it: Standing, split: Mapping[str, int]) -> dict[str, Any] | None:
    """The summary that waits for a person's answer, and what it would change; None if none does.

    ``split`` is the meter's: system, tools, summary and messages now.
    """
    attempt = it.attempt
    if attempt is None or attempt.status != AttemptStatus.PREVIEW:
        return None
    attempt.session = it.session
    found = outlook.previewed(attempt)
    now = sum(split[name] for name in ("system", "tools", "summary", "messages"))
    left = split["messages"] - found.taken
    return {
        "attempt": attempt.pk,
        "focus": attempt.focus,
        "goes": [_bundle(each) for each in found.goes],
        "stays": [_bundle(each) for each in found.stays],
        "before": now,
        "after": split["system"] + split["tools"] + (found.written or 0) + left,
        "written": found.written,
        "summary": found.body,
    }


def _bundle(each: outlook.Bundle) -> dict[str, Any]:
    return {"kind": each.kind, "count": each.count, "tokens": each.tokens}


# --- Notices ------------------------------------------------------------------------------------


def deferral(it: Standing) -> dict[str, Any] | None:
    """That a turn does not wait any longer for a summary which is still being written."""
    attempt = it.attempt
    if attempt is None or attempt.status not in domain.OPEN or attempt.hold_released_at is None:
        return None
    text = _(
        "Summary deferred, still streaming. This turn did not wait for it; it takes effect from "
        "the turn after it is done."
    )
    key = f"deferred:{attempt.pk}"
    told = {"code": "compaction_deferred", "level": "info", "text": text}
    return {"key": key, **told, "turn": attempt.held_turn_id}


def blockage(it: Standing) -> dict[str, Any] | None:
    """That a session above its limit is not being summarised, and why."""
    if it.blocked is None or not it.is_over:
        return None
    why = words.compaction(it.blocked)
    text = _(
        "This chat is over its limit and is not being summarised: %(what)s. %(then)s Until then "
        "the oldest messages are left out of what the model reads; you keep all of them."
    ) % {"what": why.what, "then": next_try(it.retry_at, otherwise=str(why.then))}
    key = f"blocked:{it.session.pk}:{it.blocked}"
    return {"key": key, "code": "compaction_blocked", "level": "warn", "text": text}


def outcome(it: Standing, told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How what a person asked for came out, for a connection that was told that it ran."""
    attempt = it.attempt
    if told is None or attempt is None or attempt.trigger != Trigger.MANUAL:
        return None
    was_open = told["attempt"] == attempt.pk and told["state"] in domain.OPEN
    if not was_open or attempt.status in domain.UNFINISHED:
        return None
    key = f"outcome:{attempt.pk}"
    if attempt.status == AttemptStatus.COMMITTED:
        return {"key": key, **done(attempt)}
    if attempt.status == AttemptStatus.CANCELLED:
        text = _("The summary was cancelled. Nothing was changed.")
        return {"key": key, "code": "compaction_cancelled", "level": "info", "text": text}
    why = words.compaction(attempt.reason)
    text = _("No summary was made: %(what)s. Nothing was changed. %(then)s") % {
        "what": why.what,
        "then": next_try(it.retry_at, otherwise=""),
    }
    return {"key": key, "code": "compaction_failed", "level": "warn", "text": text.strip()}


def done(attempt: CompactionAttempt) -> dict[str, Any]:
    """What a summary has changed, in words."""
    text = _("Summarised: %(before)s → %(after)s tokens. It holds from the next turn on.") % {
        "before": tokens(attempt.before_tokens),
        "after": tokens(attempt.after_tokens),
    }
    return {"code": "compaction_done", "level": "info", "text": text}


def next_try(at: datetime | None, *, otherwise: str) -> str:
    """When an automatic attempt is due again, in words."""
    if at is None:
        return otherwise
    left = max(0, int((at - timezone.now()).total_seconds()))
    return _("The next try by itself is at %(time)s, in %(left)s; /compact tries at once.") % {
        "time": moment_words(at, "clock"),
        "left": f"{left // 60}:{left % 60:02d}",
    }
