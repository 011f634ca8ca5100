"""Every ``make x`` that a page tells is a target of the Makefile."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from hermes import env

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    *(env.BASE / "docs").rglob("*.md"),
]
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.S)
TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.M)


def targets() -> set[str]:
    return set(TARGET.findall((env.BASE / "Makefile").read_text(encoding="utf-8")))


def told() -> list[tuple[str, str]]:
    """(page, target) for each ``make x`` in code on a page."""
    found = []
    for page in PAGES:
        path = env.BASE / page
        if path.exists():
            for code in CODE.findall(path.read_text(encoding="utf-8")):
                found += [(str(page), name) for name in re.findall(r"\bmake ([a-z][a-z-]*)", code)]
    return found


def test_what_pages_tell_exists() -> None:
    known = targets()
    assert {(page, name) for page, name in told() if name not in known} == set()
    assert told()  # the pages do tell some


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_help_shows_every_target_that_can_be_made() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=env.BASE, capture_output=True, text=True, check=True
    ).stdout
    named = set(re.findall(r"^  make ([a-z-]+)", shown, re.M))
    assert {"help", "setup", "run", "test", "check", "lint", "types", "imports"} <= named
    for name in named:
        dry = subprocess.run(["make", "-n", name], cwd=env.BASE, capture_output=True, text=True)
        assert dry.returncode == 0, dry.stderr


def test_every_target_is_explained() -> None:
    text = (env.BASE / "Makefile").read_text(encoding="utf-8")
    assert targets() == set(re.findall(r"^([a-z][a-z-]*):.*## \S", text, re.M))
