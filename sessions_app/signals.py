"""Signals that other applications may listen to: hints, sent after commit, that may be lost."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

turn_committed: Final = Signal()  # session_id, turn_id: a turn completed
session_ended: Final = Signal()  # session_id
