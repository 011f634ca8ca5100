"""Secrets out of text: every live one by its value, and what looks like one by its form.

Redact before cutting: half a secret is still one, and no longer found.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from typing import Final

SHOWN: Final = "[redacted]"
SHORTEST: Final = 6  # characters; a shorter "secret" would blot out words

_FORMS: Final = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:.*?-----END\ [A-Z ]*PRIVATE\ KEY-----|.*)
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{20,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,} | \bhf_[A-Za-z0-9]{20,} | \bgsk_[A-Za-z0-9]{20,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*
    | (?i:(?<=\bbearer\ )|(?<=\bbasic\ ))(?=[^\s"']*[0-9+/=_-])[A-Za-z0-9._~+/=-]{8,}
    | (?<=://)[^\s/:@?\#]*:[^\s/@]+(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and without what looks like one.

    >>> redact("the key hunter2-and-more failed", ["hunter2-and-more"])
    'the key [redacted] failed'
    >>> redact("GET https://me:pass@example.org with Bearer abc123def456")
    'GET https://[redacted]@example.org with Bearer [redacted]'
    """
    # Longest first: one secret may be the beginning of another.
    for secret in sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, SHOWN)
    return _FORMS.sub(SHOWN, text)


class LiveSecrets:
    """The secrets that this process holds right now; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._values)}>"

    def add(self, *values: str) -> None:
        """Have these redacted from now on."""
        with self._lock:
            self._values |= {value for value in values if len(value) >= SHORTEST}

    def redact(self, text: str) -> str:
        """The text without any of them."""
        return redact(text, self._values)


live: Final = LiveSecrets()


class RedactingFilter(logging.Filter):
    """Redacts a record before any handler formats it: message, arguments and traceback.

    It belongs on every handler: a filter of a logger does not see the records of its children.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record, redacted."""
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit: logging itself would print them
            message = f"{record.msg} (its arguments do not fit)"
        record.msg, record.args = live.redact(message), None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = live.redact(record.exc_text)
        if record.stack_info:
            record.stack_info = live.redact(record.stack_info)
        return True
