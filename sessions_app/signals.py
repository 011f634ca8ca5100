"""Signals that other applications may listen to: hints, sent after commit, that may be lost."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

# A turn completed: session_id, turn_id, window; size is what the provider counted, or None.
turn_committed: Final = Signal()
turn_started: Final = Signal()  # session_id, turn_id, source: its input is a message now
turn_ended: Final = Signal()  # session_id, turn_id: it ended without its answer
turn_overflowed: Final = Signal()  # session_id, turn_id: a provider refused it as too long
context_changed: Final = Signal()  # session_id: its generation was raised
session_ended: Final = Signal()  # session_id
