"""What the model is given: system prompt, current summary, and the newest messages that fit.

Read newest first by keyset, so that it costs the same at any length of the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from hermes.lib import tokens
from hermes.lib.chat import ChatMessage, Role, ToolCall, ToolSpec
from sessions_app import domain
from sessions_app.domain import MessageRole
from sessions_app.models import Message, Session

from .head import described

PAGE: Final = 200  # rows of numbers read at a time
CLIPPED: Final = "\n… {count} characters left out …\n"


@dataclass(frozen=True)
class Context:
    """The messages of one request, and what was measured while choosing them."""

    messages: Sequence[ChatMessage]
    last_seq: int  # newest message that is in
    built_on_id: int | None  # the summary it was built on
    left_out: int  # live messages above the summary that had no room
    tokens: int  # estimate of the whole request
    live_tokens: int  # of the session at this moment


def build(
    session_id: int,
    *,
    window: int,
    tools: Sequence[ToolSpec],
    ratio: float = 1.0,
    session: Session | None = None,
) -> Context:
    """The context of a session for a model with this window.

    ``ratio`` is what this model counts for each estimated token; a margin covers the rest of the
    estimate's error. ``session`` saves reading it where the caller has just written it.
    """
    if session is None:
        session = Session.objects.select_related("summary").get(pk=session_id)
    system = settings.HERMES_SYSTEM_PROMPT
    fixed = tokens.estimate(system) + described(tools)
    head = [ChatMessage(Role.SYSTEM, system)]
    covered = 0
    if session.summary is not None:
        covered = session.summary.covers_through
        fixed += session.summary.tokens
        head.append(ChatMessage(Role.SYSTEM, session.summary.text))
    room = domain.budget(domain.estimated_window(window, ratio), fixed)
    above = Message.objects.filter(session_id=session_id, seq__gt=covered)
    if session.live_tokens <= room and session.live_count <= PAGE:
        # All of it has room: the rows are read at once, instead of their sizes first.
        whole = list(above.live().order_by("seq"))
        sizes = (domain.Row(each.seq, each.role, each.tokens) for each in reversed(whole))
        wanted = set(domain.fit(sizes, room))
        chosen = [each for each in whole if each.seq in wanted]
    else:
        seqs = domain.fit(_newest_first(session_id, covered), room)
        chosen = list(above.filter(seq__in=seqs).order_by("seq"))
    messages = [_wire(message, room) for message in chosen]
    used = sum(message.tokens for message in chosen)
    return Context(
        messages=[*head, *messages],
        last_seq=chosen[-1].seq if chosen else 0,
        built_on_id=session.summary_id,
        left_out=max(0, session.live_count - len(chosen)),
        tokens=fixed + used,
        live_tokens=session.live_tokens,
    )


def _newest_first(session_id: int, covered: int) -> Iterator[domain.Row]:
    below = None
    while True:
        rows = Message.objects.filter(session_id=session_id, seq__gt=covered).live()
        if below is not None:
            rows = rows.filter(seq__lt=below)
        page = list(rows.order_by("-seq").values_list("seq", "role", "tokens")[:PAGE])
        for seq, role, size in page:
            yield domain.Row(seq, role, size)
        if len(page) < PAGE:
            return
        below = page[-1][0]


def _wire(message: Message, room: int) -> ChatMessage:
    """One row as the port carries it; a row larger than the whole room is clipped head and tail."""
    text = message.text
    if message.tokens > room and message.role != MessageRole.USER:
        text = clip(text, max(200, room))
    match message.role:
        case MessageRole.USER:
            return ChatMessage(Role.USER, text)
        case MessageRole.TOOL:
            return ChatMessage(Role.TOOL, text, tool_call_id=message.parts["call_id"])
        case _:
            calls = tuple(
                ToolCall(call["id"], call["name"], call["arguments"])
                for call in message.parts.get("calls", ())
            )
            return ChatMessage(Role.ASSISTANT, text, tool_calls=calls)


def clip(text: str, room: int) -> str:
    """Head and tail of a text of about ``room`` tokens, with what is left out said between."""
    keep = room  # one character a token at worst, so this never exceeds the room
    if len(text) <= keep:
        return text
    half = keep // 2
    return text[:half] + CLIPPED.format(count=len(text) - 2 * half) + text[-half:]
