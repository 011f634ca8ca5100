"""A scripted OpenAI-compatible HTTP server: says what the script says, writes down what it saw."""

from __future__ import annotations

from .behaviour import Behaviour, Call, Rule, expected_answer, expected_summary
from .remote import RemoteScripted, scripted_process
from .server import ScriptedServer

__all__ = [
    "Behaviour",
    "Call",
    "RemoteScripted",
    "Rule",
    "ScriptedServer",
    "expected_answer",
    "expected_summary",
    "scripted_process",
]
