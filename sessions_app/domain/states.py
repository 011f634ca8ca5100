"""States, reasons and kinds, and which move may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class TurnStatus(StrEnum):
    """Where a turn stands; the chart is in ``docs/state-machines.md``."""

    QUEUED = "queued"  # not begun, or handed back, or resumed
    RUNNING = "running"  # a worker holds its lease
    WAITING = "waiting"  # for an approval, a process or the provider; no worker is held
    COMPLETED = "completed"  # answered
    FAILED = "failed"  # the model could not answer, with the reason
    CANCELLED = "cancelled"  # stopped by a person, or its session was ended
    INTERRUPTED = "interrupted"  # its worker is gone; the text so far is kept


TURN_MOVES: Final[Mapping[TurnStatus, frozenset[TurnStatus]]] = {
    TurnStatus.QUEUED: frozenset({TurnStatus.RUNNING, TurnStatus.CANCELLED}),
    TurnStatus.RUNNING: frozenset(
        {
            TurnStatus.COMPLETED,
            TurnStatus.FAILED,
            TurnStatus.CANCELLED,
            TurnStatus.INTERRUPTED,
            TurnStatus.WAITING,
            TurnStatus.QUEUED,
        }
    ),
    TurnStatus.WAITING: frozenset({TurnStatus.QUEUED, TurnStatus.CANCELLED}),
}
OPEN_TURN: Final = frozenset({TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING})
BUSY_TURN: Final = frozenset({TurnStatus.RUNNING, TurnStatus.WAITING})


class TurnSource(StrEnum):
    """What began a turn."""

    PERSON = "person"  # carries an input that becomes a user message
    REGENERATE = "regenerate"  # answers the last message again; no input of its own
    CONTINUE = "continue"  # goes on after a partial answer
    COMPLETION = "completion"  # background processes report


WITHOUT_INPUT: Final = frozenset({TurnSource.REGENERATE, TurnSource.CONTINUE})

RANK_RESUMED: Final = 0
RANK_PROMOTED: Final = 1
RANK_PERSON: Final = 2
RANK_COMPLETION: Final = 3


class MessageRole(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageKind(StrEnum):
    """What a message is, beside its role."""

    TEXT = "text"  # said by a person or by the model
    NUDGE = "nudge"  # machine-written: asks the model to go on
    RESULT = "result"  # what a tool returned
    COMPLETION = "completion"  # machine-written: what background processes report


class EndClass(StrEnum):
    """What an end means for news of that session (completions)."""

    USER = "user"  # a boundary that a person drew
    SYSTEM = "system"  # the chat stays routable
    CONTINUATION = "continuation"  # goes on in another session


class EndReason(StrEnum):
    """Why a session ended; some are known from imports only."""

    SESSION_RESET = "session_reset"  # /new
    DELETED = "deleted"
    NEW_SESSION = "new_session"
    SESSION_SWITCH = "session_switch"
    USER_EXIT = "user_exit"
    IDLE_TIMEOUT = "idle_timeout"
    DAILY_RESET = "daily_reset"
    SHUTDOWN = "shutdown"
    EVICTED = "evicted"
    SUSPENDED = "suspended"
    COMPRESSION = "compression"


END_CLASS: Final[Mapping[EndReason, EndClass]] = {
    EndReason.SESSION_RESET: EndClass.USER,
    EndReason.DELETED: EndClass.USER,
    EndReason.NEW_SESSION: EndClass.USER,
    EndReason.SESSION_SWITCH: EndClass.USER,
    EndReason.USER_EXIT: EndClass.USER,
    EndReason.IDLE_TIMEOUT: EndClass.SYSTEM,
    EndReason.DAILY_RESET: EndClass.SYSTEM,
    EndReason.SHUTDOWN: EndClass.SYSTEM,
    EndReason.EVICTED: EndClass.SYSTEM,
    EndReason.SUSPENDED: EndClass.SYSTEM,
    EndReason.COMPRESSION: EndClass.CONTINUATION,
}


class BegunBy(StrEnum):
    """Who began a session."""

    USER = "user"
    SYSTEM = "system"


class RewindReason(StrEnum):
    """Why rows were taken out of the context."""

    EDIT = "edit"
    REGENERATE = "regenerate"
    UNDO = "undo"
    VERSION = "version"  # another version was brought back in their place


class EndpointRole(StrEnum):
    """What a model endpoint is used for."""

    CHAT = "chat"
    SUMMARY = "summary"


class EndpointKind(StrEnum):
    """Which adapter speaks to an endpoint."""

    OPENAI = "openai"
    OFFLINE = "offline"


class Code(StrEnum):
    """Why something was refused; each has words in ``WORDS`` and an entry in ``docs/frames.md``."""

    NOT_FOUND = "not_found"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    TOO_LONG = "too_long"
    ID_REUSED = "id_reused"
    QUEUE_FULL = "queue_full"
    TOO_MANY = "too_many"
    NOT_QUEUED = "not_queued"
    NOTHING_RUNS = "nothing_runs"
    NOTHING_TO_REDO = "nothing_to_redo"
    BUSY = "busy"
    ENDED = "ended"


class Refused(Exception):
    """The request is refused; the message is for the person who asked."""

    def __init__(self, code: StrEnum, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def after_loss(*, put_back: int, has_output: bool) -> TurnStatus:
    """Back to ``queued`` once where nothing was saved and no tool ran; else ``interrupted``.

    >>> after_loss(put_back=0, has_output=False), after_loss(put_back=1, has_output=False)
    (<TurnStatus.QUEUED: 'queued'>, <TurnStatus.INTERRUPTED: 'interrupted'>)
    """
    return TurnStatus.QUEUED if put_back == 0 and not has_output else TurnStatus.INTERRUPTED
