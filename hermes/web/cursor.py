"""The pure part of the protocol: what a process knows of a stream, what a socket has been told.

A :class:`Stream` puts the text of one run together from hints and rows, whatever is lost, doubled
or out of order. A :class:`Cursor` makes frames from what was read and from the stream; a frame is
never made from anything else, so that a lost hint costs time and nothing more.
Offsets and lengths are code points of all the assistant text of a turn's run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from .taskframes import Tasks, changes

HELD: Final = 256 * 1024  # code points of text that waits for what is before it
WAITING: Final = "waiting"
ENDED: Final = frozenset({"completed", "cancelled", "interrupted", "failed"})

KINDS: Final = {
    "chat": "chat.changed",
    "compaction": "compaction.update",
    "preview": "compaction.preview",
}

Frame: TypeAlias = dict[str, Any]


class Move(StrEnum):
    """What a piece of text did to a stream."""

    GREW = "grew"
    KNOWN = "known"
    GAP = "gap"  # text before it is missing: rows have it, or will


@dataclass(frozen=True)
class Closed:
    """A block of the answer that nothing can change any more."""

    k: int
    start: int
    end: int
    html: str


@dataclass(eq=False)
class Stream:
    """The contiguous text of one run of a turn, from ``base`` on, as far as this process knows."""

    turn: int
    run: int
    session: int
    base: int | None = None  # None until rows have said where the text begins
    text: str = ""
    blocks: list[Closed] = field(default_factory=list)
    part: int = 0  # raised when the base moves: blocks are counted anew
    splitter: Any = None  # closes blocks; fed with all text before ``fed``, once
    fed: int = 0
    _held: dict[int, str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Where the next piece belongs."""
        return (self.base or 0) + len(self.text)

    @property
    def has_gap(self) -> bool:
        """Whether text is held that does not join on yet."""
        return bool(self._held)

    def open(self, base: int, text: str) -> Move:
        """Rows say that the text begins at ``base`` and how it goes on from there.

        When a step was committed the base moves up, and what is before it is let go.
        """
        if self.base is None:
            self.base = base
            self._join()
        elif base > self.base:
            self.text = self.text[base - self.base :]
            self.base = base
            self.blocks = []
            self.splitter = None
            self.part += 1
            self._join()
        return self.take(base, text)

    def take(self, offset: int, text: str) -> Move:
        """Add a piece: what is known of it is dropped, what does not join on is held."""
        if self.base is None or offset > self.end:
            self._hold(offset, text)
            return Move.GAP
        new = text[self.end - offset :]
        if not new:
            return Move.KNOWN
        self.text += new
        self._join()
        return Move.GREW

    def slice(self, start: int, end: int | None = None) -> str:
        """The text from ``start`` to ``end``, in offsets."""
        base = self.base or 0
        return self.text[start - base : None if end is None else end - base]

    def _hold(self, offset: int, text: str) -> None:
        if len(text) > len(self._held.get(offset, "")):
            self._held[offset] = text
        if sum(map(len, self._held.values())) > HELD:
            self._held.clear()  # rows bring it

    def _join(self) -> None:
        """Take what is held and joins on by now."""
        for offset in sorted(self._held):
            if offset > self.end:
                return
            self.text += self._held.pop(offset)[self.end - offset :]


# --- What was read ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TurnSeen:
    """A turn whose row has changed."""

    id: int
    run: int
    status: str
    started: bool
    base: int  # code points of assistant text in messages
    text: str = ""  # what the person said, where the turn has not started
    code: str = ""
    message: str = ""
    retry: bool = False
    until: str | None = None
    seq: int | None = None  # its last message
    said: str | None = None  # all its assistant text, where the socket followed and has ended
    messages: Sequence[Mapping[str, Any]] | None = None
    html: str | None = None
    blocks: Sequence[Mapping[str, Any]] | None = None
    total: int = 0
    foot: str = ""


@dataclass(frozen=True)
class Live:
    """The running turn's text: where it begins, and what is stored of it."""

    turn: int
    run: int
    base: int
    stored: str


@dataclass(frozen=True)
class Fold:
    """How summarising stands in a session, and what of it may have to be told."""

    mark: str  # what the poll compares
    summary: int | None  # the current one
    pill: Mapping[str, Any]
    due_at: int = 0  # tokens below which the size of the context has no say in it
    elapsed: float | None = None
    preview: Mapping[str, Any] | None = None
    notices: Sequence[Mapping[str, Any]] = ()  # each with the ``key`` under which it is told once


@dataclass(frozen=True)
class Seen:
    """One consistent look at the rows, as far as a socket has not been told of them."""

    chat: int
    session: int | None
    version: int = 0
    generation: int = 0
    is_ended: bool = False
    chat_version: int = 0
    reason: str | None = None  # why everything is told anew; None if it is not
    whole: Mapping[str, Any] | None = None  # everything, where it is
    turns: Sequence[TurnSeen] = ()
    live: Live | None = None
    busy: TurnSeen | None = None
    queue: Sequence[Mapping[str, Any]] = ()
    chat_part: Mapping[str, Any] | None = None
    meter: Mapping[str, Any] | None = None
    fold: Fold | None = None
    tasks: Tasks = field(default_factory=Tasks)
    htmls: Mapping[str, str] = field(default_factory=dict)  # of what stands beside the log


# --- What was told ------------------------------------------------------------------------------


@dataclass
class Cursor:
    """What one socket has been told; every frame is made by one of its methods."""

    html: bool = False
    session: int | None = None
    version: int = 0
    generation: int = 0
    is_ended: bool = False
    chat_version: int = -1
    queue: Sequence[Mapping[str, Any]] = ()
    busy: tuple[int, int, str] | None = None  # turn, run, status
    until: str | None = None  # … and until when it may be held
    fold: Fold | None = None
    tasks: Tasks | None = None
    noticed: set[str] = field(default_factory=set)  # notices that are told once a connection
    turn: int | None = None  # the turn whose text is followed
    run: int = 0
    base: int = 0
    offset: int = 0
    k: int = 0  # closed blocks told
    seq: int = 0  # the newest row told of that turn

    def follows(self, turn: int, run: int) -> bool:
        """Whether the text of this run is being sent."""
        return (self.turn, self.run) == (turn, run)

    @property
    def pill(self) -> Mapping[str, Any] | None:
        """How summarising stands, as it was told last."""
        return None if self.fold is None else self.fold.pill

    @property
    def preview(self) -> int | None:
        """The attempt whose preview was told last."""
        known = None if self.fold is None else self.fold.preview
        return None if known is None else known["attempt"]

    def knows(self, turn: TurnSeen) -> bool:
        """Whether a busy turn was told as it is."""
        is_held = turn.status == "running" and not turn.started
        known = self.busy == (turn.id, turn.run, "held" if is_held else turn.status)
        return known and not (is_held and turn.until != self.until)

    def is_behind(self, stream: Stream) -> bool:
        """Whether a step was committed that this socket has not been told of."""
        return self.follows(stream.turn, stream.run) and stream.base != self.base

    def advance(self, seen: Seen, stream: Stream | None) -> list[Frame]:
        """The frames that bring a client from what it was told to what was seen."""
        frames: list[Frame] = []
        for turn in seen.turns:
            frames += self._turn(turn)
        if seen.whole is not None:
            kind = "hello" if seen.reason == "hello" else "session.changed"
            told: Frame = {"type": kind, **seen.whole, "turn": self._adopt(seen, stream)}
            if seen.fold is not None:
                told["compaction"] = {**seen.fold.pill, "elapsed": seen.fold.elapsed}
            if kind != "hello":
                told["reason"] = seen.reason
            if self.html:
                told["htmls"] = seen.htmls
            frames.append(told)
        elif list(seen.queue) != list(self.queue):
            frames.append(self._with_html("queue", seen, {"items": seen.queue}))
        if seen.whole is None and seen.chat_part is not None:
            frames.append(self._with_html("chat", seen, {"chat": seen.chat_part}))
        if seen.whole is None and seen.meter is not None:
            frames.append(self._with_html("meter", seen, seen.meter))
        frames += self._folded(seen)
        frames += changes(self.tasks, seen.tasks)
        self.tasks = seen.tasks
        self.session, self.version = seen.session, seen.version
        self.generation, self.is_ended = seen.generation, seen.is_ended
        self.chat_version, self.queue = seen.chat_version, seen.queue
        frames += self.follow(stream)
        return frames

    def _folded(self, seen: Seen) -> list[Frame]:
        """What has changed about summaries."""
        fold = seen.fold
        frames: list[Frame] = []
        if fold is not None and seen.whole is None:
            if fold.pill != self.pill:
                told = {**fold.pill, "elapsed": fold.elapsed}
                frames.append(self._with_html("compaction", seen, told))
            if fold.preview is not None and fold.preview["attempt"] != self.preview:
                frames.append(self._with_html("preview", seen, fold.preview))
        for notice in () if fold is None else fold.notices:
            if notice["key"] not in self.noticed:
                self.noticed.add(notice["key"])
                about = {name: value for name, value in notice.items() if name != "key"}
                frames.append({"type": "notice", **about})
        self.fold = fold
        return frames

    def _with_html(self, name: str, seen: Seen, fields: Mapping[str, Any]) -> Frame:
        kind = KINDS.get(name, name)
        html = {"html": seen.htmls[name]} if name in seen.htmls else {}
        return {"type": kind, **fields, **html}

    def follow(self, stream: Stream | None) -> list[Frame]:
        """The frames of the text that the stream has and the client has not."""
        if stream is None or stream.base is None:
            return []
        if not self.follows(stream.turn, stream.run) or stream.base != self.base:
            return []
        frames: list[Frame] = []
        about = {"turn": stream.turn, "run": stream.run}
        for block in stream.blocks[self.k :] if self.html else ():
            reached = max(self.offset, block.end)
            frames.append(
                {
                    "type": "turn.block",
                    **about,
                    "k": block.k,
                    "from": block.start,
                    "to": block.end,
                    "html": block.html,
                    "open": stream.slice(block.end, reached),
                }
            )
            self.offset, self.k = reached, block.k + 1
        if stream.end > self.offset:
            text = stream.slice(self.offset)
            frames.append({"type": "turn.delta", **about, "offset": self.offset, "text": text})
            self.offset = stream.end
        return frames

    def _adopt(self, seen: Seen, stream: Stream | None) -> Frame | None:
        """Take over the busy turn of a whole; return what ``hello`` says about it."""
        self._leave()
        busy = seen.busy
        if busy is None:
            return None
        self.busy = (busy.id, busy.run, busy.status)
        told: Frame = {"id": busy.id, "run": busy.run, "base": busy.base, "len": busy.base}
        told["status"] = busy.status if busy.started else "held"
        if not busy.started:
            self.busy, self.until = (busy.id, busy.run, told["status"]), busy.until
            told |= {"said": busy.text, "until": busy.until}
        text = ""
        blocks: list[Closed] = []
        if seen.live is not None and stream is not None:
            self._begin(busy)
            session = seen.whole["session"] if seen.whole is not None else None
            self.seq = 0 if session is None else session["last_seq"]
            blocks = list(stream.blocks) if self.html else []
            self.offset, self.k = stream.end, len(blocks)
            text = stream.slice(blocks[-1].end if blocks else busy.base)
            told["len"] = stream.end
        if not self.html:
            return {**told, "text": text}
        shown = [{"k": b.k, "from": b.start, "to": b.end, "html": b.html} for b in blocks]
        return {**told, "blocks": shown, "open": text}

    def _begin(self, turn: TurnSeen) -> None:
        self.turn, self.run, self.seq = turn.id, turn.run, turn.seq or 0
        self.base = self.offset = turn.base
        self.k = 0

    def _leave(self) -> None:
        self.turn = self.busy = None
        self.run = self.base = self.offset = self.k = self.seq = 0

    def _let_go(self, turn: TurnSeen) -> bool:
        """Follow a turn no more; whether it was followed, or busy.

        The next one may have been told of as busy before: a claim changes no version.
        """
        busy = self.busy
        was_busy = busy is not None and busy[0] == turn.id
        was_followed = self.turn == turn.id
        if was_followed:
            self._leave()
            self.busy = busy
        if was_busy:
            self.busy = None
        return was_busy or was_followed

    def _turn(self, turn: TurnSeen) -> list[Frame]:
        content: Frame = {}
        if turn.html is not None:
            content["html"] = turn.html
        if turn.messages is not None:
            content["messages"] = turn.messages
        if turn.status in ENDED:
            return self._end(turn, content)
        mark = (turn.id, turn.run, turn.status if turn.started else "held")
        if turn.status == "running" and turn.started:
            kind = "turn.tool" if self.follows(turn.id, turn.run) else "turn.started"
            self.busy = mark
            self._begin(turn)
            about = {"turn": turn.id, "run": turn.run, "base": turn.base, "len": turn.base}
            return [{"type": kind, **about, **content}]
        known = self.knows(turn)
        if turn.status == "running":
            self.busy, self.until = mark, turn.until
            told = {"type": "turn.held", "turn": turn.id, "until": turn.until, "text": turn.text}
            return [] if known else [told]
        was_followed = self._let_go(turn)
        if turn.status == WAITING:
            self.busy = mark
            why = {"code": turn.code, "message": turn.message, "until": turn.until}
            return [] if known else [{"type": "turn.waiting", "turn": turn.id, **why, **content}]
        if turn.started or was_followed:
            return [{"type": "turn.queued", "turn": turn.id, **content}]
        return []

    def _end(self, turn: TurnSeen, content: Frame) -> list[Frame]:
        frames: list[Frame] = []
        told: Frame = {"type": f"turn.{turn.status}", "turn": turn.id, "run": turn.run}
        told |= {"len": turn.base, "seq": turn.seq}
        if turn.status != "completed" or turn.code:
            told["code"] = turn.code
        if turn.status == "failed":
            told |= {"message": turn.message, "retry": turn.retry, "retry_at": turn.until}
        if self.follows(turn.id, turn.run):
            rest = "" if turn.said is None or self.html else turn.said[self.offset :]
            if rest:
                about = {"turn": turn.id, "run": turn.run, "offset": self.offset}
                frames.append({"type": "turn.delta", **about, "text": rest})
            if turn.blocks is not None:
                content = {"blocks": turn.blocks, "total": turn.total, "foot": turn.foot}
        self._let_go(turn)
        return [*frames, {**told, **content}]
