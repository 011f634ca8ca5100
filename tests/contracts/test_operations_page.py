"""docs/operations.md: log lines, sweep steps and reasons of compaction that it tells are there."""

from __future__ import annotations

import ast
import re

from compression_app.domain import Reason
from hermes.management.start.programs import programs
from sessions_app import sweeps

from .sources import called, modules, page, section

PAGE = "docs/operations.md"
# What finds the line of a program on the page, and options that are a matter of taste there.
KEYS = {
    "web": ("daphne",),
    "beat": ("celery", " beat "),
    "supervisor": ("manage.py", "supervise"),
    "turns": ("worker", "-Q turns"),
    "background": ("worker", "-Q background"),
}
LEFT_TO_THE_SUPERVISOR = {
    "--loglevel",
    "--no-server-name",
    "--http-timeout",
    "--application-close-timeout",
    "--websocket_connect_timeout",
}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def logged() -> set[str]:
    """Every constant message of the product's log calls, and those that a filter rewords."""
    found = set()
    for tree in modules().values():
        for node in ast.walk(tree):
            if called(node) in LEVELS and node.args and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
            if isinstance(node, ast.Assign) and "record.msg" in ast.unparse(node.targets[0]):
                found |= {
                    str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)
                }
    return found


def test_every_log_line_that_is_told_is_written() -> None:
    lines = re.findall(r"^\| (`.+?) \| (\w+) \|", section(page(PAGE), "Logs"), re.M)
    told = {message for cell, _ in lines for message in re.findall(r"`([^`]+)`", cell)}
    assert len(told) > 10
    written = logged()
    # A message may go on behind a colon with what to do.
    known = written | {line.split(":")[0] for line in written}
    assert told - known == set()


def test_every_sweep_step_that_is_told_is_there() -> None:
    told = re.findall(r"^\| `(\w+)` \|", section(page(PAGE), "Sweeps"), re.M)
    assert told
    assert [name for name in told if not callable(getattr(sweeps, name, None))] == []


def test_every_reason_of_compaction_is_told_once_and_the_reverse() -> None:
    told = re.findall(r"^#### `(\w+)`$", section(page(PAGE), "Compaction"), re.M)
    assert sorted(told) == sorted(str(reason) for reason in Reason)


def test_the_commands_for_servers_of_ones_own_are_those_that_run() -> None:
    told = re.sub(r"\s*\\\n\s*", " ", page("docs/howto/use-your-own-servers.md"))
    for program in programs():
        words = list(program.command[2:])  # behind ``python -m``
        line = next(
            (each for each in told.splitlines() if all(key in each for key in KEYS[program.name])),
            "",
        )
        options = {word for word in words if word.startswith("--")} - LEFT_TO_THE_SUPERVISOR
        assert line, program.name
        assert {word for word in options if word.split("=")[0] not in line} == set(), program.name
        for option in ("-Q", "-c", "-P", "-v"):
            if option in words:
                assert f"{option} {words[words.index(option) + 1]} " in f"{line} ", program.name
