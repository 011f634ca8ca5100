"""The single writer of sessions, turns, chunks, messages, rewinds and summaries."""

from __future__ import annotations

from .ends import end, end_locked, end_unheld, open_calls, streamed_text
from .rewinds import bring_back, rewind
from .rows import (
    append,
    moving_history,
    next_version,
    publish,
    publish_chat,
    raise_generation,
    record,
)
from .summaries import Draft, apply_summary, covered_by, live_between, undo_summary
from .turns import (
    Claimed,
    Step,
    append_result,
    append_step,
    claim,
    context_tokens,
    facts_of,
    finish,
    resume,
    save_chunk,
    start,
    until_text,
    wait,
    waiting_until_passed,
)

__all__ = [
    "Claimed",
    "Draft",
    "Step",
    "append",
    "append_result",
    "append_step",
    "apply_summary",
    "bring_back",
    "claim",
    "context_tokens",
    "covered_by",
    "end",
    "end_locked",
    "end_unheld",
    "facts_of",
    "finish",
    "live_between",
    "moving_history",
    "next_version",
    "open_calls",
    "publish",
    "publish_chat",
    "raise_generation",
    "record",
    "resume",
    "rewind",
    "save_chunk",
    "start",
    "streamed_text",
    "undo_summary",
    "until_text",
    "wait",
    "waiting_until_passed",
]
