"""What is said when something cannot start."""

from __future__ import annotations


class CannotStart(Exception):
    """Something cannot start; the message is one clear line that says what to do."""
