"""Codes of six digits that change every half minute, as authenticator apps make them (RFC 6238)."""

from __future__ import annotations

import base64
import hmac
import secrets
from hashlib import sha1
from typing import Final
from urllib.parse import quote, urlencode

STEP: Final = 30  # seconds
DIGITS: Final = 6
AROUND: Final = 1  # steps before and after now that are taken too


def new_secret() -> str:
    """A secret of 160 bits, in the letters that apps want."""
    return base64.b32encode(secrets.token_bytes(20)).decode("ascii")


def code(secret: str, step: int) -> str:
    """The code of a step.

    >>> code(base64.b32encode(b"12345678901234567890").decode(), 59 // 30)
    '287082'
    >>> code(base64.b32encode(b"12345678901234567890").decode(), 1111111109 // 30)
    '081804'
    """
    key = base64.b32decode(secret)
    # SHA-1 is what apps make codes with; as a keyed hash it is not the weak one.
    digest = hmac.new(key, step.to_bytes(8, "big"), sha1).digest()
    place = digest[-1] & 0x0F
    number = int.from_bytes(digest[place : place + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}d}"


def matching_step(secret: str, told: str, *, now: float, after: int = 0) -> int | None:
    """The step whose code was told, none but later than ``after``; None if there is none.

    Every code counts once: the caller keeps the step that matched and gives it as ``after``.

    >>> matching_step("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "287082", now=59.0)
    1
    >>> matching_step("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "287082", now=59.0, after=1) is None
    True
    """
    told = "".join(told.split())
    current = int(now) // STEP
    found = None
    for step in range(current - AROUND, current + AROUND + 1):
        is_it = hmac.compare_digest(code(secret, step).encode(), told.encode())
        if is_it and step > after:
            found = step
    return found


def address(secret: str, *, name: str, issuer: str) -> str:
    """What an app reads, as a link.

    >>> address("ABC", name="rosa l", issuer="Hermes")
    'otpauth://totp/Hermes:rosa%20l?secret=ABC&issuer=Hermes'
    """
    query = urlencode({"secret": secret, "issuer": issuer})
    return f"otpauth://totp/{quote(issuer)}:{quote(name)}?{query}"


def grouped(secret: str) -> str:
    """A secret as it is typed: in groups of four.

    >>> grouped("ABCDEFGH")
    'ABCD EFGH'
    """
    return " ".join(secret[n : n + 4] for n in range(0, len(secret), 4))
