"""docs/operations.md says of every reason for which news is dropped what it means."""

from __future__ import annotations

import re

from processes_app.domain import DropReason

from .sources import page, section


def test_every_reason_has_a_section_and_the_reverse() -> None:
    text = section(page("docs/operations.md"), "Dropped completions")
    told = re.findall(r"^#### `(\w+)`$", text, re.M)
    assert sorted(told) == sorted(str(reason) for reason in DropReason)


def test_every_section_says_what_to_do() -> None:
    for reason in DropReason:
        text = section(page("docs/operations.md"), f"`{reason}`")
        assert re.search(r"\*\*Operator:\*\* \S", text), reason
