"""States, kinds and reasons of processes, completions and approvals, and their moves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ProcessStatus(StrEnum):
    """Where a process stands; the chart is in ``docs/state-machines.md``."""

    STARTING = "starting"  # the row is there; the child is not, or is not known yet
    RUNNING = "running"  # a child with a known identity
    ENDED = "ended"  # with a reason, and an exit code or a signal
    LOST = "lost"  # nobody can say how it ended
    FAILED_START = "failed_start"  # no child ever ran


PROCESS_MOVES: Final[Mapping[ProcessStatus, frozenset[ProcessStatus]]] = {
    ProcessStatus.STARTING: frozenset(
        {
            ProcessStatus.RUNNING,
            ProcessStatus.ENDED,
            ProcessStatus.LOST,
            ProcessStatus.FAILED_START,
        }
    ),
    ProcessStatus.RUNNING: frozenset({ProcessStatus.ENDED, ProcessStatus.LOST}),
}
ACTIVE: Final = frozenset(PROCESS_MOVES)


class ProcessReason(StrEnum):
    """Why a process is not running any more."""

    EXITED = "exited"  # by itself, with an exit code or by a signal from outside
    KILLED = "killed"  # we ended it; ``kill_by`` says for whom
    TIMED_OUT = "timed_out"  # it passed its time limit
    TOO_MANY = "too_many"  # it made too many processes
    HANDED_BACK = "handed_back"  # taken back before it began
    NOT_STARTED = "not_started"  # the child could not be made
    REBOOTED = "rebooted"  # the machine was started again meanwhile
    VANISHED = "vanished"  # it is gone, and nobody saw how


class KillBy(StrEnum):
    """For whom a process is ended."""

    PERSON = "person"  # the owner, by the button
    OPERATOR = "operator"
    AGENT = "agent"  # the agent's own tool call: it knows
    TURN = "turn"  # the turn to which a foreground command belongs has ended
    BOUNDARY = "boundary"  # its chat or session was deleted


class EventKind(StrEnum):
    """What an event reports; others may be found in the table, and are refused by name."""

    COMPLETION = "completion"  # a process has ended
    DELEGATION = "async_delegation"  # a delegated agent has finished


UNCONFINED: Final = "none"  # the level at which a child can write what is told of its end
UNTRUSTED: Final = frozenset(  # tools whose results are words of programs and other agents
    {"run_command", "read_output", "wait_process", "send_input", "kill_process", "delegate"}
)


class EventStatus(StrEnum):
    """Where the news of an end stands; the chart is in ``docs/state-machines.md``."""

    PENDING = "pending"  # due, or due again later
    ACCEPTED = "accepted"  # in a queued turn that has not started
    DELIVERED = "delivered"  # that turn has started: its message exists
    DROPPED = "dropped"  # with the reason
    CONSUMED = "consumed"  # the agent had the result already
    QUIET = "quiet"  # shown in its session; starts no turn


EVENT_MOVES: Final[Mapping[EventStatus, frozenset[EventStatus]]] = {
    EventStatus.PENDING: frozenset(
        {EventStatus.ACCEPTED, EventStatus.DROPPED, EventStatus.CONSUMED, EventStatus.QUIET}
    ),
    EventStatus.ACCEPTED: frozenset({EventStatus.DELIVERED, EventStatus.PENDING}),
    EventStatus.DROPPED: frozenset({EventStatus.PENDING, EventStatus.QUIET}),
    EventStatus.QUIET: frozenset({EventStatus.PENDING, EventStatus.DROPPED}),
}
UNSETTLED: Final = frozenset({EventStatus.PENDING, EventStatus.ACCEPTED})


class DropReason(StrEnum):
    """Why news was not delivered; each has a section in ``docs/operations.md``."""

    UNKNOWN_TYPE = "unknown_type"
    SESSION_DELETED = "session_deleted"
    OWNER_UNPROVEN = "owner_unproven"
    CLOSED_BY_USER = "closed_by_user"
    OWNER_INACTIVE = "owner_inactive"
    UNKNOWN_CHAT = "unknown_chat"
    DISCARDED = "discarded"


ALERTED: Final = frozenset({DropReason.UNKNOWN_TYPE, DropReason.OWNER_UNPROVEN})


class QuietReason(StrEnum):
    """Why news is shown without a turn."""

    TOO_OLD = "too_old"
    KILLED = "killed"  # by the person or an operator, who knows
    NEWER_SESSION = "newer_session"  # the person began another session meanwhile
    OPERATOR = "operator"  # an operator chose it


class Held(StrEnum):
    """Why due news waits although its session could take it."""

    NO = ""
    BUDGET = "budget"  # the session has been woken often enough in this hour
    STREAK = "streak"  # many automatic turns in a row; waits for the person
    QUEUED = "queued"  # a turn with earlier news has not started yet
    TAKING = "taking"  # a running turn is about to have the result
    TIP = "tip"  # its session continues in one that is not there yet


class ApprovalStatus(StrEnum):
    """Where an approval stands; the chart is in ``docs/state-machines.md``."""

    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"


APPROVAL_MOVES: Final[Mapping[ApprovalStatus, frozenset[ApprovalStatus]]] = {
    ApprovalStatus.PENDING: frozenset(
        {ApprovalStatus.ALLOWED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED}
    ),
}


class Answer(StrEnum):
    """What a person may say to a command."""

    ONCE = "once"
    ALWAYS = "always"  # this command, directory and script, in this chat
    DENY = "deny"


class Policy(StrEnum):
    """What operators let the agent run."""

    ASK = "ask"  # a person is asked, unless they have said Always
    ALLOW_LIST = "allow-list"  # listed commands run, others are asked for
    OFF = "off"
