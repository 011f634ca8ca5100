"""The single writer of sessions, turns, chunks, messages, rewinds and summaries."""

from __future__ import annotations

from .ends import end, end_locked, end_unheld, open_calls, streamed_text
from .rewinds import bring_back, rewind
from .rows import append, next_version, publish, publish_chat, record
from .turns import (
    Claimed,
    Step,
    append_result,
    append_step,
    claim,
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
    "Step",
    "append",
    "append_result",
    "append_step",
    "bring_back",
    "claim",
    "end",
    "end_locked",
    "end_unheld",
    "facts_of",
    "finish",
    "next_version",
    "open_calls",
    "publish",
    "publish_chat",
    "record",
    "resume",
    "rewind",
    "save_chunk",
    "start",
    "streamed_text",
    "until_text",
    "wait",
    "waiting_until_passed",
]
