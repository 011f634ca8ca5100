"""The port to a chat model: what a turn asks, what streams back, how it can fail.

Adapters (``chat_openai``, ``chat_offline``) implement :class:`ChatModel`; nothing above this
module knows which one answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias


class Role(StrEnum):
    """Who speaks, in the terms of the wire."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asks for; ``arguments`` is its JSON text, as it came."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolSpec:
    """A tool that the model may call; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ChatMessage:
    """One message of a request."""

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None  # set on the result of a call


@dataclass(frozen=True)
class ChatRequest:
    """All that one model call is given."""

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int | None = None


@dataclass(frozen=True)
class Usage:
    """What the provider says that the call cost, in tokens."""

    prompt: int
    completion: int


class FinishReason(StrEnum):
    """Why the model stopped by itself."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True)
class TextDelta:
    """Text of the answer, in order."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    """Text of the model's reasoning, in order; never sent back to a model."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The last event of a stream that ended well; tool calls come whole or not at all."""

    reason: FinishReason
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None


ChatEvent: TypeAlias = TextDelta | ReasoningDelta | Finished


class ErrorKind(StrEnum):
    """How a model call failed; each has words for the person in ``docs/operations.md``."""

    AUTHENTICATION = "authentication"  # 401: the key is refused
    PERMISSION = "permission"  # 403: the key may not do this
    NOT_FOUND = "not_found"  # 404: no such model or address
    QUOTA = "quota"  # the account has used up what it may
    RATE = "rate"  # 429: wait; see retry_after
    OVERLOADED = "overloaded"  # 5xx, 529: the provider is unwell
    TOO_LONG = "too_long"  # the request does not fit into the model's window
    REFUSED = "refused"  # 400 or a filter: the provider will not answer this request
    UNREACHABLE = "unreachable"  # no connection, or no answer to it
    BLOCKED = "blocked"  # the address is one that we do not connect to
    STALLED = "stalled"  # silent, or going on, for longer than allowed
    CUT = "cut"  # the stream ended without a finish mark
    EMPTY = "empty"  # the stream ended well and said nothing
    MALFORMED = "malformed"  # what came is not the protocol
    SHUT_DOWN = "shut_down"  # shutdown() was called: a stop, not a failure


class ChatModelError(Exception):
    """A model call failed; the message is fit for an operator and holds no secret."""

    def __init__(
        self, kind: ErrorKind, message: str = "", *, retry_after: float | None = None
    ) -> None:
        super().__init__(message or kind.value)
        self.kind = kind
        self.retry_after = retry_after  # seconds that the provider asks to wait


class ChatStream(Protocol):
    """One model call. Iterating connects and yields events; it ends with ``Finished`` or raises.

    It raises nothing but :class:`ChatModelError`. What was yielded before an error is true.
    """

    def __iter__(self) -> Iterator[ChatEvent]: ...

    def shutdown(self) -> None:
        """Wake the reader at once, from any thread and at any time, also before it connected.

        The iteration then raises ``ChatModelError(SHUT_DOWN)``. Calling it twice is harmless.
        """

    def close(self) -> None:
        """Give back the connection; after it the provider sees the request as gone."""


class ChatModel(Protocol):
    """A model that can be asked."""

    name: str
    window: int  # tokens, prompt and answer together

    def open(self, request: ChatRequest) -> ChatStream:
        """Return the call, not yet connected: no I/O happens here."""


@dataclass(frozen=True)
class Limits:
    """How long a call may take, in seconds, and how much may come back, in bytes."""

    connect: float = 5.0
    idle: float = 120.0  # between two parsed events, the first included
    total: float = 3600.0
    line_bytes: int = 1024 * 1024
    body_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS: Final = Limits()
