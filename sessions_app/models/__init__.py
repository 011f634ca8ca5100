"""What can be true of chats, sessions, turns and messages: columns, constraints, named filters."""

from __future__ import annotations

from .chats import Chat, Session
from .endpoints import ModelEndpoint
from .journal import ClientRequest, History, Periodic
from .messages import Message, Rewind, Summary
from .turns import Turn, TurnChunk

__all__ = [
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
