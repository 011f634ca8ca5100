"""The form of log records: one line each, whatever stands in them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from hermes import env
from hermes.lib.logs import JsonFormatter, TextFormatter, WrongHost

HOSTILE = "in\r\n2026-01-01 ERROR forged: x \x1b[31m\x9b2J\u2028\u202eabc\ud800"


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("hermes.x").makeRecord(
        "hermes.x", logging.INFO, "f", 1, message, args, None, extra=dict(extra)
    )
    made.created = 1_700_000_000.5
    return made


def test_text_has_time_level_logger_message_and_fields() -> None:
    shown = TextFormatter().format(record("turn ended", turn=7, reason="two words", empty=""))
    assert shown == (
        '2023-11-14T22:13:20.500Z INFO hermes.x: turn ended turn=7 reason="two words" empty=""'
    )


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_nothing_forges_a_line(formatter: logging.Formatter) -> None:
    for made in (record(HOSTILE), record("got %s", HOSTILE), record("got", text=HOSTILE)):
        shown = formatter.format(made)
        assert len(shown.splitlines()) == 1
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(shown)
        shown.encode("utf-8")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_cannot_forge_a_line(formatter: logging.Formatter) -> None:
    made = record("it broke")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        made.exc_info = sys.exc_info()
    first, *rest = formatter.format(made).splitlines()
    assert "it broke" in first
    assert all(line.startswith("  | ") for line in rest)
    assert "ValueError" in formatter.format(made)


def test_json_keeps_numbers_and_names() -> None:
    shown = json.loads(JsonFormatter().format(record("turn ended", turn=7, level="mine", x=None)))
    assert shown == {
        "at": "2023-11-14T22:13:20.500Z",
        "level": "INFO",
        "logger": "hermes.x",
        "message": "turn ended",
        "turn": 7,
        "x": None,
    }


def test_a_wrong_host_names_the_setting() -> None:
    made = record(
        "Invalid HTTP_HOST header: %r. You may need to add %r to ALLOWED_HOSTS.", "e", "e"
    )
    WrongHost().filter(made)
    shown = TextFormatter().format(made)
    assert "HERMES_ORIGINS" in shown
    assert "host=e" in shown
    assert "WARNING" in shown


@pytest.mark.parametrize(
    ("level", "celery", "tasks"),
    [("DEBUG", "INFO", "INFO"), ("INFO", "INFO", "WARNING"), ("ERROR", "ERROR", "ERROR")],
)
def test_each_task_is_told_only_to_who_debugs(level: str, celery: str, tasks: str) -> None:
    asked = (
        "import django, logging; django.setup(); name = logging.getLevelName; "
        "print(*(name(logging.getLogger(n).getEffectiveLevel()) for n in "
        "('celery.apps.worker', 'celery.app.trace', 'celery.beat', 'celery.worker.strategy')))"
    )
    said = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "hermes.settings", "HERMES_LOG_LEVEL": level},
        cwd=env.BASE,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout.split() == [celery, tasks, tasks, tasks]
