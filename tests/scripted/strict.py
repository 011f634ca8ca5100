"""What a strict provider refuses in a request."""

from __future__ import annotations

import json
from typing import Any


def _blank(content: Any) -> bool:
    if isinstance(content, list):
        return not any(str(part.get("text", "")).strip() for part in content)
    return not (isinstance(content, str) and content.strip())


def _object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, TypeError):
        return False


def violations(body: dict[str, Any]) -> list[str]:
    """Every rule that the request breaks, in words; empty for a valid one."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages: missing or empty"]
    found: list[str] = []
    open_calls: list[str] = []
    before: str | None = None
    for n, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        calls = message.get("tool_calls") or []
        where = f"message {n} ({role})"
        if role not in {"system", "user", "assistant", "tool"}:
            found.append(f"{where}: unknown role")
        if _blank(content) and not (role == "assistant" and calls):
            found.append(f"{where}: empty content")
        if role == "tool":
            if message.get("tool_call_id") in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                found.append(f"{where}: result without a call directly before")
        else:
            if open_calls:
                found.append(f"{where}: calls without a result: {open_calls}")
                open_calls = []
            if role == before:
                found.append(f"{where}: neighbour of the same role")
            if role == "system" and n:
                found.append(f"{where}: system after the start")
        for call in calls:
            function = call.get("function") or {}
            if call.get("id") in open_calls or not call.get("id"):
                found.append(f"{where}: call id missing or doubled")
            if not function.get("name"):
                found.append(f"{where}: call without a name")
            if not _object(function.get("arguments")):
                found.append(f"{where}: arguments are no JSON object")
            open_calls.append(call.get("id", ""))
        before = role
    if open_calls:
        found.append(f"end: calls without a result: {open_calls}")
    if before not in {"user", "tool"}:
        found.append("end: the last message must be of the user or a tool")
    return found
