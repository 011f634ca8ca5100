"""What goes into a summary: the rows between the previous one and the cut, read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sessions_app import transcript
from sessions_app.domain import MessageKind, MessageRole
from sessions_app.models import Message, Session, Summary, Turn

from . import domain
from .domain import Row, Said

PAGE: Final = 200  # rows of numbers read at a time
LONG: Final = 2_000  # characters above which an old tool result is clipped …
KEPT: Final = 800  # … to so many at each end


def _rows(session_id: int, low: int, high: int, *, newest_first: bool) -> Iterator[Row]:
    """Live rows with ``low`` < seq ≤ ``high``, by keyset."""
    at = high + 1 if newest_first else low
    while True:
        live = Message.objects.filter(session_id=session_id, seq__gt=low, seq__lte=high).live()
        live = live.filter(seq__lt=at) if newest_first else live.filter(seq__gt=at)
        live = live.order_by("-seq" if newest_first else "seq")
        page = list(live.values_list("seq", "role", "kind", "tokens", "parts__calls")[:PAGE])
        for seq, role, kind, size, calls in page:
            yield Row(seq, role, kind, size, has_calls=bool(calls))
        if len(page) < PAGE:
            return
        at = page[-1][0]


@dataclass(frozen=True)
class Range:
    """What an attempt would take: rows up to ``cut``."""

    cut: int
    messages: int
    tokens: int


def compactable(session: Session, window: int) -> Range:
    """What of a locked session could go into a summary, leaving the protected tail."""
    low = transcript.covered_by(session)
    high = session.last_seq
    busy = Turn.objects.busy().filter(session=session, first_seq__isnull=False)
    first = busy.values_list("first_seq", flat=True).first()
    newest = _rows(session.pk, low, high, newest_first=True)
    begin = domain.cut_before(newest, domain.tail_budget(window))
    if begin is None:
        return Range(low, 0, 0)
    cut = min(begin, first if first is not None else begin) - 1
    count, size = transcript.live_between(session.pk, low, cut)
    return Range(cut, count, size)


@dataclass(frozen=True)
class Piece:
    """One message as the summariser is shown it."""

    label: str
    text: str
    is_untrusted: bool


@dataclass(frozen=True)
class Source:
    """All that one summary is made of."""

    pieces: tuple[Piece, ...]
    previous: Summary | None
    cut: int
    tokens: int  # of the rows, estimated
    said: tuple[Said, ...]  # messages of people, verbatim
    anchors: tuple[str, ...]
    is_untrusted: bool


def read(session: Session, cut: int, room: int) -> Source | None:
    """Whole groups from the previous summary on, as many as fit into ``room`` tokens.

    None if there is no row to summarise. At least the first group is taken, clipped.
    """
    low = transcript.covered_by(session)
    rows: list[Row] = []
    used = 0
    for row in _rows(session.pk, low, cut, newest_first=False):
        rows.append(row)
        used += row.tokens
        if used > room and len(domain.groups(rows)) > 1:
            break
    taken = domain.take_groups(rows, room)
    if taken is None:
        return None
    messages = Message.objects.filter(session=session, seq__gt=low, seq__lte=taken).live()
    pieces, said, found, seen = [], [], [], set()
    total = 0
    for message in messages.order_by("seq"):
        total += message.tokens
        is_machine = message.kind in {MessageKind.RESULT, MessageKind.COMPLETION}
        text = message.text
        if is_machine:
            text = "the same as an earlier result" if text in seen else clip(text)
            seen.add(message.text)
        elif message.tokens > room:
            text = clip(text, room)
        pieces.append(Piece(_label(message), text, is_machine))
        if message.role == MessageRole.USER and message.kind == MessageKind.TEXT:
            said.append(Said(message.seq, message.text, message.tokens))
        found.extend(domain.anchors(message.text))
        found.extend(
            anchor
            for call in message.parts.get("calls", ())
            for anchor in domain.anchors(call["arguments"])
        )
    inherits = session.summary is not None and session.summary.is_untrusted
    return Source(
        pieces=tuple(pieces),
        previous=session.summary,
        cut=taken,
        tokens=total,
        said=tuple(said),
        anchors=tuple(dict.fromkeys(found)),
        is_untrusted=inherits or any(piece.is_untrusted for piece in pieces),
    )


def clip(text: str, keep: int = KEPT) -> str:
    """A long text's head and tail, with what is left out said between."""
    if len(text) <= max(LONG, 2 * keep):
        return text
    return f"{text[:keep]}\n… {len(text) - 2 * keep} characters left out …\n{text[-keep:]}"


def _label(message: Message) -> str:
    match message.role, message.kind:
        case MessageRole.USER, MessageKind.TEXT:
            return "person"
        case MessageRole.USER, MessageKind.COMPLETION:
            return "report of a background process"
        case MessageRole.USER, _:
            return "note"
        case MessageRole.TOOL, _:
            return f"result of {message.parts.get('name', 'a tool')}"
        case _:
            calls = message.parts.get("calls", ())
            named = ", ".join(f"{call['name']}({call['arguments'][:200]})" for call in calls)
            return f"assistant, calling {named}" if named else "assistant"
