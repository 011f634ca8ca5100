"""What this application takes on: each function locks, checks, writes the first row and hints."""

from __future__ import annotations

from .approvals import answer, ask, expire, open_approvals, revoke, revoke_for_operator, standing
from .delegations import follow_delegation, follow_delegations
from .events import discard, redeliver, settle_held, settle_soon, show_quietly
from .processes import (
    Ask,
    End,
    Refusal,
    Started,
    ask_kill,
    claim,
    end_of_session,
    end_of_turn,
    import_running,
    kill_for_operator,
    mark_sent,
    note_kill_failed,
    note_tail,
    purge,
    record_end,
    record_start,
    send_input,
    start_process,
    take,
    unsent_input,
)
from .turns import follow_turn

__all__ = [
    "Ask",
    "End",
    "Refusal",
    "Started",
    "answer",
    "ask",
    "ask_kill",
    "claim",
    "discard",
    "end_of_session",
    "end_of_turn",
    "expire",
    "follow_delegation",
    "follow_delegations",
    "follow_turn",
    "import_running",
    "kill_for_operator",
    "mark_sent",
    "note_kill_failed",
    "note_tail",
    "open_approvals",
    "purge",
    "record_end",
    "record_start",
    "redeliver",
    "revoke",
    "revoke_for_operator",
    "send_input",
    "settle_held",
    "settle_soon",
    "show_quietly",
    "standing",
    "start_process",
    "take",
    "unsent_input",
]
