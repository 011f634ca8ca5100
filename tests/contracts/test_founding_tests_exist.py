"""Every row of docs/founding-tests.md names a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from hermes import env

PAGE = (env.BASE / "docs" / "founding-tests.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([A-Z]\d+) \|.*`(tests/[^`]+)` \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("row", "name"), ROWS)
def test_it_is_there(row: str, name: str) -> None:
    path, *names = name.split("::")
    body = ast.parse((env.BASE / path).read_text(encoding="utf-8")).body
    for part in names:
        (found,) = [node for node in body if getattr(node, "name", None) == part]
        body = getattr(found, "body", [])


def test_no_row_is_missing() -> None:
    named = [row for row, _ in ROWS]
    assert [row for row in named if row[0] == "H"] == [f"H{n}" for n in range(1, 7)]
    assert [row for row in named if row[0] == "R"] == [f"R{n}" for n in range(1, 21)]
