"""What a provider means when it says no: status, code and words become a kind of error."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

from .chat import ErrorKind

WORDS_KEPT: Final = 500  # characters of a message with the provider's own words

_TOO_LONG: Final = re.compile(
    r"""context[ _-]?(length|window|size)
      | maximum\ (context|prompt|model)\ ?(length|size|tokens)?
      | max(imum)?[ _]?(input[ _])?(tokens|prompt).{0,40}exceed
      | exceeds?.{0,60}\b(max(imum)?|limit)\b.{0,40}\btokens
      | exceeds?\ (the\ )?(available\ )?(context|model'?s?\ (max|token))
      | (prompt|input|request|messages?)\b.{0,40}\b(is|are|was)\ too\ (long|large)
      | too\ many\ (input\ |prompt\ )?tokens
      | (input|prompt).{0,30}(longer|larger|greater)\ than.{0,60}(tokens|context|max)
      | token\ (count|limit).{0,40}exceed
      | reduce\ the\ length\ of
      | string_above_max_length | request_too_large
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_QUOTA_CODE: Final = re.compile(
    r"insufficient_?(user_)?(quota|balance|credit|funds)|billing|quota_?exceeded|payment_?required"
    r"|credits?_?exhausted|spend(ing)?_limit",
    re.IGNORECASE,
)
_QUOTA_WORDS: Final = re.compile(
    r"exceeded your (current|monthly) (quota|usage|spend)|insufficient (quota|balance|credit|funds)"
    r"|(credit|balance).{0,20}(too low|exhausted|depleted|insufficient)"
    r"|out of credits|requires more credits|spend(ing)? limit|hard limit",
    re.IGNORECASE,
)
_AUTH: Final = re.compile(
    r"invalid_?api_?key|api key.{0,20}(not valid|invalid|incorrect|expired|missing)"
    r"|(invalid|incorrect|missing|no) api key|authentication_error|unauthenticated|unauthorized",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(
    r"model_?not_?found|(model|deployment)\b.{0,80}\b(not found|does not exist|not exist|unknown)"
    r"|(no such|unknown|invalid) model",
    re.IGNORECASE,
)
_FILTER: Final = re.compile(
    r"content_?(filter|policy|management)|responsible_?ai|safety (system|filter)|moderation"
    r"|flagged as|prohibited content|data_inspection_failed",
    re.IGNORECASE,
)
_RATE: Final = re.compile(r"rate_?limit|too many requests|slow down|throttl", re.IGNORECASE)
_OVERLOADED: Final = re.compile(
    r"overloaded|server_error|internal_?(server_?)?error|unavailable|engine_overloaded|bad gateway"
    r"|at capacity|timed? ?out|upstream|try again later",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Refusal:
    """What a provider said; ``status`` is 0 where it came inside a stream without one."""

    status: int = 0
    code: str = ""  # its code, type and reason, whatever it gave
    message: str = ""
    parameter: str = ""  # the parameter that it does not take

    @classmethod
    def of(cls, body: object, status: int = 0) -> Refusal:
        """Read an error body in any of the shapes in use.

        >>> Refusal.of({"error": {"message": "no", "code": "bad"}}, 400)
        Refusal(status=400, code='bad', message='no', parameter='')
        >>> Refusal.of("gateway", 502).message
        'gateway'
        """
        inner: object = body
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, Mapping) and inner.get("error"):
            outer, inner = inner, inner["error"]
            if not isinstance(inner, Mapping) and outer.get("message"):
                inner = {**outer, "code": inner}
        if not isinstance(inner, Mapping):
            return cls(status, message=_as_text(inner))
        words = [inner.get(name) for name in ("message", "detail", "msg", "error_description")]
        codes = [inner.get(name) for name in ("code", "type", "status", "reason")]
        if not status:
            status = next((c for c in map(_number, codes) if c is not None and 400 <= c <= 599), 0)
        return cls(
            status,
            " ".join(code for code in codes if isinstance(code, str) and code),
            next((_as_text(word) for word in words if word), "" if any(codes) else _as_text(inner)),
            _as_text(inner.get("param") or ""),
        )

    def kind(self, *, waits: bool = False) -> ErrorKind:
        """Which kind of error this is; ``waits``: the provider said how long to wait.

        >>> Refusal(429, "insufficient_quota").kind()
        <ErrorKind.QUOTA: 'quota'>
        >>> Refusal(400, message="maximum context length is 8192 tokens").kind()
        <ErrorKind.TOO_LONG: 'too_long'>
        """
        said = f"{self.code} {self.message}"
        status = self.status
        spent = bool(_QUOTA_CODE.search(self.code)) or bool(_QUOTA_WORDS.search(said))
        if status == 429 or (not status and _RATE.search(said)):
            # Some providers use the words of an empty account for a limit by the minute: whoever
            # says when to come again has not closed the account.
            by_code = bool(_QUOTA_CODE.search(self.code))
            return ErrorKind.QUOTA if by_code or (spent and not waits) else ErrorKind.RATE
        if status == 402:
            return ErrorKind.QUOTA
        if status == 401:
            return ErrorKind.AUTHENTICATION
        if status == 403:
            return ErrorKind.QUOTA if spent else ErrorKind.PERMISSION
        if status in {404, 405, 410}:
            return ErrorKind.NOT_FOUND
        if status == 413:
            return ErrorKind.TOO_LONG
        if (status in {0, 400, 422} or status >= 500) and _TOO_LONG.search(said):
            return ErrorKind.TOO_LONG
        if status in {408, 409, 425} or status >= 500:
            return ErrorKind.OVERLOADED
        if 300 <= status < 400:
            return ErrorKind.BLOCKED
        if spent:
            return ErrorKind.QUOTA
        if _FILTER.search(said):
            return ErrorKind.REFUSED
        if _AUTH.search(said):
            return ErrorKind.AUTHENTICATION
        if _NO_MODEL.search(said):
            return ErrorKind.NOT_FOUND
        if not status and _OVERLOADED.search(said):
            return ErrorKind.OVERLOADED
        return ErrorKind.REFUSED if status else ErrorKind.OVERLOADED

    def words(self) -> str:
        """What was said, in one line; it may hold secrets until it has been redacted."""
        status = f"HTTP {self.status}" if self.status else ""
        said = (status, self.code, " ".join(self.message.split()))
        return ": ".join(part for part in said if part) or "no reason given"

    def names(self, *parameters: str) -> bool:
        """Whether the refusal is about one of these parameters of the request."""
        return self.status in {400, 422, 501} and any(
            name == self.parameter or name in self.message for name in parameters
        )


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds that the provider asks to wait, from seconds or an HTTP date; None if it does not.

    A date is measured from the provider's own ``Date``, where it gives one, so that two clocks
    that differ do no harm.

    >>> retry_after({"retry-after": "4"})
    4.0
    >>> retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, now=40)
    60.0
    >>> retry_after({"retry-after": "soon"}) is None
    True
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        raw = headers.get(name, "").strip()
        seconds = _float(raw)
        if seconds is not None:
            return max(0.0, seconds / unit)
        if raw and (then := _moment(raw)) is not None:
            start = _moment(headers.get("date", "")) if now is None else now
            return max(0.0, then - (time.time() if start is None else start))
    return None


def _moment(raw: str) -> float | None:
    try:
        return parsedate_to_datetime(raw).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _float(raw: str) -> float | None:
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""
