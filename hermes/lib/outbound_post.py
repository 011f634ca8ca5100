"""One JSON message to an address that an operator named, over the guarded line."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2

from .outbound import Policy, parse_base_url
from .outbound_http import Transport
from .outbound_line import Line

CONNECT: Final = 5.0  # seconds
IN_ALL: Final = 15.0
ANSWER_BYTES: Final = 64 * 1024


def post_json(
    address: str, message: dict[str, Any], *, key: str = "", policy: Policy
) -> tuple[int, str]:
    """Send a message, follow nothing; the status of the answer and the beginning of its text.

    Raises:
        BadAddress: the address is not one that may be connected to.
        Exception: of the line or of HTTP; its kind says what went wrong.
    """
    base = parse_base_url(address)
    line = Line(base, policy, connect=CONNECT, idle=IN_ALL, total=IN_ALL)
    transport = Transport(line, key=key, body_bytes=ANSWER_BYTES, error_bytes=1024)
    with httpx2.Client(transport=transport, trust_env=False, follow_redirects=False) as client:
        answer = client.post(
            base.url,
            content=json.dumps(message, ensure_ascii=False).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "hermes"},
        )
        return answer.status_code, answer.text[:200]
