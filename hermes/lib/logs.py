"""How log records look: one record a line, data as fields, and nothing that could forge a line.

Messages are constants and data stands in ``extra``: ``log.info("turn ended", extra={"turn": 7})``
comes out as ``… INFO sessions_app.runner: turn ended turn=7``. Text from people, models and
processes may stand in both: control characters come out escaped.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from datetime import UTC, datetime
from typing import Any, Final

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "request",  # Django's: an object, not a value
    "server_time",
}
# Line ends of every kind, terminal escapes, and marks that turn the reading direction.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_PLAIN: Final = re.compile(r"[\w.:/@%+,\-]+")
_LONGEST: Final = 2_000  # characters of one value


def escaped(text: str) -> str:
    r"""``text`` on one line, without characters that act on a terminal or on a log reader.

    >>> escaped("in\r\n2026 ERROR forged \x1b[31mred")
    'in\\r\\n2026 ERROR forged \\x1b[31mred'
    """
    shown = _UNSAFE.sub(lambda found: repr(found.group())[1:-1], text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave as ``extra``, in the order in which it was given."""
    return {name: value for name, value in record.__dict__.items() if name not in _USUAL}


def _value(value: object) -> str:
    text = escaped(str(value))
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _trace(record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback and stack, each escaped."""
    lines: list[str] = []
    if record.exc_info:
        lines += "".join(traceback.format_exception(*record.exc_info)).split("\n")
    elif record.exc_text:
        lines += record.exc_text.split("\n")
    if record.stack_info:
        lines += record.stack_info.split("\n")
    return [escaped(line) for line in lines if line]


class TextFormatter(logging.Formatter):
    """``time LEVEL logger: message key=value …``; a traceback follows on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; only lines that begin with ``  | `` continue it."""
        parts = [
            f"{_when(record)} {record.levelname} {record.name}: {escaped(record.getMessage())}"
        ]
        parts += [f"{name}={_value(value)}" for name, value in fields(record).items()]
        return "\n  | ".join([" ".join(parts), *_trace(record)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        told: dict[str, object] = {
            "at": _when(record),
            "level": record.levelname,
            "logger": record.name,
            "message": escaped(record.getMessage()),
        }
        for name, value in fields(record).items():
            plain = isinstance(value, (int, float, bool, type(None)))
            told.setdefault(name, value if plain else escaped(str(value))[:_LONGEST])
        if trace := _trace(record):
            told["trace"] = trace
        return json.dumps(told, ensure_ascii=False)


class WrongHost(logging.Filter):
    """Tells the operator which setting a refused host name is about; one line, no traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Reword the record; it is always kept."""
        error = record.exc_info[1] if record.exc_info else None
        said = str(error or record.getMessage())
        found = re.search(r"'(.*?)'", said)
        record.msg = "host name refused: add its full origin to HERMES_ORIGINS if it is yours"
        record.args = ()
        record.host = found.group(1) if found else said
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
        return True
