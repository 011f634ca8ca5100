"""The shapes of what clients are told (``docs/frames.md``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict


class ChatPart(TypedDict):
    """The chat, as ``hello`` and ``chat.changed`` carry it."""

    id: str
    title: str
    version: int
    draft: str


class SessionPart(TypedDict):
    """The chat's current session."""

    id: int
    number: int
    version: int
    generation: int
    last_seq: int


class MessagePart(TypedDict):
    """One message, for clients without ``html``."""

    seq: int
    turn: int | None
    role: str
    kind: str
    text: str
    is_partial: bool
    parts: Mapping[str, Any]


class QueueItem(TypedDict):
    """One waiting message."""

    turn: int
    text: str


class TurnPart(TypedDict):
    """The busy turn, as ``hello`` and ``session.changed`` carry it."""

    id: int
    run: int
    status: str
    base: int
    len: int
    blocks: NotRequired[Sequence[Mapping[str, Any]]]
    open: NotRequired[str]
    text: NotRequired[str]
    said: NotRequired[str]
    until: NotRequired[str | None]


class MeterPart(TypedDict):
    """How full the context is, in tokens."""

    used: int
    window: int
    system: int
    tools: int
    summary: int
    messages: int
    left_out: int
    free: int
    reserve: int
    soft: int
    hard: int
    is_estimate: bool
    turns_left: int | None


class FoldPart(TypedDict):
    """How summarising stands: the newest attempt, or what keeps one from being opened."""

    attempt: int | None
    state: str
    phase: str
    reason: str
    trigger: str
    elapsed: float | None
    progress: int
    before: int
    after: int
    retry_at: str | None
    since: str | None
    until: str | None
    summary: int | None


class BundlePart(TypedDict):
    """Messages of one sort, or one part of a summary."""

    kind: str
    count: int
    tokens: int


class PreviewPart(TypedDict):
    """A summary that waits for a person's answer, and what it would change."""

    attempt: int
    focus: str
    goes: Sequence[BundlePart]
    stays: Sequence[BundlePart]
    before: int
    after: int
    written: int
    summary: str


class ProcessPart(TypedDict):
    """A process of the chat."""

    id: str
    session: int | None
    turn: int | None
    state: str
    reason: str
    text: str
    command: str
    directory: str
    background: bool
    terminal: bool
    notify: bool
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    exit_code: int | None
    signal: int | None
    killed_by: str
    ending: bool
    output_bytes: int
    tail: str


class ApprovalPart(TypedDict):
    """A command that the person is, or was, asked about."""

    id: int
    turn: int
    state: str
    answer: str
    answers: Sequence[str]
    command: str
    directory: str
    until: str | None
    answered_at: str | None


class CompletionPart(TypedDict):
    """The news of an end, and what became of it."""

    id: int
    kind: str
    process: str | None
    session: int | None
    turn: int | None
    state: str
    reason: str
    held: str
    text: str
    happened_at: str | None


class LimitsPart(TypedDict):
    """What a client may send."""

    message_bytes: int
    frame_bytes: int


class Frame(TypedDict):
    """What every frame of the server has; ``n`` is counted when it is sent."""

    type: str
    n: NotRequired[int]


class Whole(Frame):
    """Everything a client shows."""

    chat: ChatPart
    session: SessionPart | None
    turn: TurnPart | None
    queue: Sequence[QueueItem]
    meter: MeterPart | None
    compaction: FoldPart | None
    preview: PreviewPart | None
    processes: Sequence[ProcessPart]
    approvals: Sequence[ApprovalPart]
    limits: LimitsPart
    html: NotRequired[str]
    htmls: NotRequired[Mapping[str, str]]
    messages: NotRequired[Sequence[MessagePart]]


class Hello(Whole):
    """The first frame."""


class SessionChanged(Whole):
    """Replace the whole log."""

    reason: str


class TurnAccepted(Frame):
    """The turn is durable."""

    ref: str | None
    id: str
    turn: int
    status: str
    known: bool


class TurnStarted(Frame):
    """A run of a turn has begun."""

    turn: int
    run: int
    base: int
    len: int
    html: NotRequired[str]
    messages: NotRequired[Sequence[MessagePart]]


class TurnTool(TurnStarted):
    """A step or a result was committed."""


class TurnHeld(Frame):
    """A turn has been taken up, but may not start yet."""

    turn: int
    until: str | None
    text: str


class TurnDelta(Frame):
    """Text that continues what was sent."""

    turn: int
    run: int
    offset: int
    text: str


class TurnReasoning(TurnDelta):
    """Thinking aloud."""


TurnBlock = TypedDict(
    "TurnBlock",
    {
        "type": str,
        "n": NotRequired[int],
        "turn": int,
        "run": int,
        "k": int,
        "from": int,
        "to": int,
        "html": str,
        "open": str,
    },
)


class TurnWaiting(Frame):
    """The turn waits for something."""

    turn: int
    code: str
    message: str
    until: str | None
    html: NotRequired[str]


class TurnQueued(Frame):
    """The turn is in the queue again."""

    turn: int
    html: NotRequired[str]


class TurnEnd(Frame):
    """A turn has ended: ``len`` is the length that is true."""

    turn: int
    run: int
    len: int
    seq: NotRequired[int | None]
    code: NotRequired[str]
    message: NotRequired[str]
    retry: NotRequired[bool]
    retry_at: NotRequired[str | None]
    blocks: NotRequired[Sequence[Mapping[str, Any]]]
    total: NotRequired[int]
    foot: NotRequired[str]
    html: NotRequired[str]
    messages: NotRequired[Sequence[MessagePart]]


class Queue(Frame):
    """The messages that wait."""

    items: Sequence[QueueItem]
    html: NotRequired[str]


class ChatChanged(Frame):
    """Title, draft, model or place of the chat."""

    chat: ChatPart
    html: NotRequired[str]


class ChatBranched(Frame):
    """The copy's address."""

    ref: str | None
    chat: str


class Sidebar(Frame):
    """Something in this person's list changed."""


class Meter(Frame, MeterPart):
    """How full the context is."""

    html: NotRequired[str]


class CompactionUpdate(Frame, FoldPart):
    """How summarising stands; replaces what was told of it before."""

    html: NotRequired[str]


class CompactionPreview(Frame, PreviewPart):
    """A summary is there to be looked at."""

    html: NotRequired[str]


class ProcessUpdate(Frame):
    """How a process stands; replaces what was told of it before."""

    process: ProcessPart
    html: NotRequired[str]


class ApprovalUpdate(Frame):
    """How a question stands."""

    approval: ApprovalPart
    html: NotRequired[str]


class CompletionUpdate(Frame):
    """What became of the news of an end."""

    completion: CompletionPart
    html: NotRequired[str]


class Tasks(Frame):
    """How many tasks are open, and the drawer."""

    open: int
    html: NotRequired[str]


class Notice(Frame):
    """A word to the person."""

    code: str
    level: Literal["info", "warn", "bad"]
    text: str
    ref: NotRequired[str | None]
    html: NotRequired[str]
    drafts: NotRequired[Sequence[str]]
    turn: NotRequired[int | None]
    rewind: NotRequired[int]


class Pong(Frame):
    """A sign of life."""

    nonce: str


class Bye(Frame):
    """The server closes."""

    code: int
    retry_after: float | None


class Error(Frame):
    """A frame was refused, or could not be carried out."""

    code: str
    message: str
    ref: NotRequired[str | None]
    retry: NotRequired[float]


TOLD: Final[Mapping[str, type]] = {
    "hello": Hello,
    "turn.accepted": TurnAccepted,
    "turn.started": TurnStarted,
    "turn.held": TurnHeld,
    "turn.delta": TurnDelta,
    "turn.block": TurnBlock,
    "turn.reasoning": TurnReasoning,
    "turn.tool": TurnTool,
    "turn.waiting": TurnWaiting,
    "turn.completed": TurnEnd,
    "turn.cancelled": TurnEnd,
    "turn.interrupted": TurnEnd,
    "turn.failed": TurnEnd,
    "turn.queued": TurnQueued,
    "queue": Queue,
    "session.changed": SessionChanged,
    "chat.changed": ChatChanged,
    "chat.branched": ChatBranched,
    "sidebar": Sidebar,
    "meter": Meter,
    "compaction.update": CompactionUpdate,
    "compaction.preview": CompactionPreview,
    "process.update": ProcessUpdate,
    "approval.update": ApprovalUpdate,
    "completion.update": CompletionUpdate,
    "tasks": Tasks,
    "notice": Notice,
    "pong": Pong,
    "bye": Bye,
    "error": Error,
}
