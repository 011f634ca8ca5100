"""The single writer of attempts, cooldowns and compression states: the commit fence.

Every function is one short transaction under the session's lock, so that cancel and commit, hold
and release, are totally ordered by the row. What an attempt leaves behind (outcome, cooldown,
streak, breaker, history) is written in the transaction that ends it, by one table.
"""

from __future__ import annotations

from .commits import Verdict, Written, apply_preview, commit
from .consequences import close, note_reading
from .ends import end, fail
from .holds import Released, hold, release
from .openings import Claimed, claim, lower_cut, open_attempt, progress
from .operators import clear_cooldowns, set_paused
from .purges import purge
from .rows import is_closed, state_of, state_of_endpoint

__all__ = [
    "Claimed",
    "Released",
    "Verdict",
    "Written",
    "apply_preview",
    "claim",
    "clear_cooldowns",
    "close",
    "commit",
    "end",
    "fail",
    "hold",
    "is_closed",
    "lower_cut",
    "note_reading",
    "open_attempt",
    "progress",
    "purge",
    "release",
    "set_paused",
    "state_of",
    "state_of_endpoint",
]
