"""What can be true of chats, sessions, turns and messages: columns, constraints, named filters."""

from __future__ import annotations

from .base import BUSY_TURN, OPEN_TURN
from .chats import Chat, Session
from .endpoints import ModelEndpoint
from .journal import TOLD_BY_ROWS, ClientRequest, History, Periodic
from .messages import Message, Rewind, Summary
from .turns import Turn, TurnChunk

__all__ = [
    "BUSY_TURN",
    "OPEN_TURN",
    "TOLD_BY_ROWS",
    "Chat",
    "ClientRequest",
    "History",
    "Message",
    "ModelEndpoint",
    "Periodic",
    "Rewind",
    "Session",
    "Summary",
    "Turn",
    "TurnChunk",
]
