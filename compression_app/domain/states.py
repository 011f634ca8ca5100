"""States of an attempt, what opens it, how it ends, and which move may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class AttemptStatus(StrEnum):
    """Where an attempt stands; the chart is in ``docs/state-machines.md``."""

    QUEUED = "queued"  # opened, not yet claimed
    RUNNING = "running"  # claimed; the model is thinking
    PREVIEW = "preview"  # written for a person to look at; waits for an answer
    COMMITTED = "committed"  # its summary is the session's
    FAILED = "failed"  # the model or the summary was no good
    CANCELLED = "cancelled"  # a person, or a hold that found it unfenced
    SUPERSEDED = "superseded"  # the session was reset or edited under it
    LOST = "lost"  # its worker is gone


_ENDS: Final = frozenset(
    {
        AttemptStatus.FAILED,
        AttemptStatus.CANCELLED,
        AttemptStatus.SUPERSEDED,
        AttemptStatus.LOST,
    }
)
ATTEMPT_MOVES: Final[Mapping[AttemptStatus, frozenset[AttemptStatus]]] = {
    AttemptStatus.QUEUED: _ENDS | {AttemptStatus.RUNNING},
    AttemptStatus.RUNNING: _ENDS | {AttemptStatus.COMMITTED, AttemptStatus.PREVIEW},
    AttemptStatus.PREVIEW: _ENDS | {AttemptStatus.COMMITTED},
}
OPEN: Final = frozenset({AttemptStatus.QUEUED, AttemptStatus.RUNNING})
UNFINISHED: Final = frozenset(ATTEMPT_MOVES)


class Trigger(StrEnum):
    """What opened an attempt."""

    SOFT = "soft"  # after a turn, above the soft mark
    HARD = "hard"  # before a turn, above the hard mark: the turn is held
    OVERFLOW = "overflow"  # the provider refused a request as too long
    BACKLOG = "backlog"  # an attempt could not take all of it
    MANUAL = "manual"  # a person
    OPERATOR = "operator"  # an operator


AUTOMATIC: Final = frozenset({Trigger.SOFT, Trigger.HARD, Trigger.BACKLOG})


class Reason(StrEnum):
    """Why an attempt ended without a commit, or why none was opened."""

    # ends
    UNFENCED = "unfenced"
    DEADLINE = "deadline"
    STALLED = "stalled"
    SESSION_ENDED = "session_ended"
    GENERATION = "generation"
    CANCELLED = "cancelled"
    HOLD_EXPIRED = "hold_expired"  # unfenced when the hold ended
    LEASE_EXPIRED = "lease_expired"
    NOT_CLAIMED = "not_claimed"
    SHUTDOWN = "shutdown"
    PROVIDER = "provider"  # with the provider's error as detail
    EMPTY = "empty"
    REASONING_ONLY = "reasoning_only"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    NOT_A_SUMMARY = "not_a_summary"  # an error text, or HTML
    MISSING_SECTIONS = "missing_sections"
    WOULD_GROW = "would_grow"
    INTERNAL = "internal"
    # refusals
    ENDED = "ended"
    ATTEMPT_OPEN = "attempt_open"
    TOO_SHORT = "too_short"
    BELOW_MARK = "below_mark"
    COOLDOWN = "cooldown"
    BREAKER = "breaker"
    PROVIDER_BREAKER = "provider_breaker"
    PAUSED = "paused"
    UNDO_FRESH = "undo_fresh"


class CooldownKind(StrEnum):
    """How long a cooldown lasts."""

    FLAT = "flat"
    LADDER = "ladder"
