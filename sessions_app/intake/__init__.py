"""What this application takes on: each function locks, checks, writes the first row and hints."""

from __future__ import annotations

from .again import bring_back, continue_turn, edit_message, regenerate, rewind_to
from .chats import (
    branch,
    choose_endpoint,
    create_chat,
    delete_chat,
    end_session,
    mark_read,
    new_session,
    open_chat,
    rename,
    set_archived,
    set_pinned,
    undelete_chat,
)
from .endpoints import origin_of, register_endpoint, seed_endpoints, set_key
from .owned import act_once, once
from .turns import (
    Accepted,
    accept_turn,
    delete_queued,
    edit_queued,
    end_stopped,
    promote,
    queue_of,
    queue_turn,
    resume,
    stop_turn,
)

__all__ = [
    "Accepted",
    "accept_turn",
    "act_once",
    "branch",
    "bring_back",
    "choose_endpoint",
    "continue_turn",
    "create_chat",
    "delete_chat",
    "delete_queued",
    "edit_message",
    "edit_queued",
    "end_session",
    "end_stopped",
    "mark_read",
    "new_session",
    "once",
    "open_chat",
    "origin_of",
    "promote",
    "queue_of",
    "queue_turn",
    "regenerate",
    "register_endpoint",
    "rename",
    "resume",
    "rewind_to",
    "seed_endpoints",
    "set_archived",
    "set_key",
    "set_pinned",
    "stop_turn",
    "undelete_chat",
]
