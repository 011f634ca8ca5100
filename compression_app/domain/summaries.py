"""What a summary must be, and the two parts of it that rows make and no model does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .states import Reason

REQUIRED: Final = ("Goal", "Done", "Next step")
SECTIONS: Final = (
    "Goal",
    "Constraints and preferences",
    "Done",
    "In progress",
    "Blocked",
    "Decisions",
    "Files, ids, numbers and links",
    "Open questions",
    "Next step",
)
_HEADING: Final = re.compile(r"^##[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_HTML: Final = re.compile(r"\A\s*<(!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_ERROR: Final = re.compile(
    r"\A\s*(\{\s*\"error\"|error[: ]|internal server error|bad gateway|service unavailable"
    r"|rate limit|traceback \(most recent)",
    re.IGNORECASE,
)
_REFUSAL: Final = re.compile(
    r"\A\W*(i('m| am) (sorry|unable)|i (cannot|can't|can not|won't)|sorry, (but )?i\b"
    r"|as an ai\b|es tut mir leid|je suis désolé)",
    re.IGNORECASE,
)


def headings(text: str) -> list[str]:
    """The second-level headings of a text.

    >>> headings("## Goal\\nx\\n## Done ##\\n### no")
    ['Goal', 'Done']
    """
    return _HEADING.findall(text)


def rejection(
    text: str, *, has_reasoning: bool = False, has_calls: bool = False, is_truncated: bool = False
) -> Reason | None:
    """Why a text is no summary, or None. A rejected summary drops nothing.

    >>> rejection(""), rejection(" ", has_reasoning=True)
    (<Reason.EMPTY: 'empty'>, <Reason.REASONING_ONLY: 'reasoning_only'>)
    >>> rejection("I'm sorry, I can't do that."), rejection("<html>502</html>")
    (<Reason.REFUSAL: 'refusal'>, <Reason.NOT_A_SUMMARY: 'not_a_summary'>)
    >>> rejection("## Goal\\nShip it."), rejection("## Goal\\na\\n## Done\\nb\\n## Next step\\nc")
    (<Reason.MISSING_SECTIONS: 'missing_sections'>, None)
    """
    if has_calls:
        return Reason.TOOL_CALL
    if not text.strip():
        return Reason.REASONING_ONLY if has_reasoning else Reason.EMPTY
    if is_truncated:
        return Reason.TRUNCATED
    if _HTML.search(text) or _ERROR.search(text):
        return Reason.NOT_A_SUMMARY
    found = {heading.casefold() for heading in headings(text)}
    if any(section.casefold() not in found for section in REQUIRED):
        return Reason.REFUSAL if _REFUSAL.search(text) else Reason.MISSING_SECTIONS
    return None


# --- Anchors --------------------------------------------------------------------------------------

_ANCHOR: Final = re.compile(
    r"""
    https?://[^\s<>()\[\]"'`]+               # links
    | (?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]+    # absolute and dotted paths
    | \b[\w.-]+/(?:[\w.@+-]+/)*[\w@+-]+\.\w{1,8}\b    # relative paths with an ending
    | \b[\w-]+\.(?:py|js|ts|rs|go|java|c|h|cpp|md|txt|json|ya?ml|toml|sql|sh|html|css|csv|log)\b
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b    # UUIDs
    | \b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b    # hashes
    | \b[A-Z][A-Z0-9]+-\d+\b    # issue keys
    | \#\d{1,7}\b    # issue numbers
    | \b\d{1,4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?\b    # dates
    | \b\d+(?:[.,:]\d+)+\b    # versions, amounts, times
    | \b\d{3,}\b    # numbers
    """,
    re.VERBOSE,
)
_TRAILING: Final = ".,;:!?)"


def anchors(text: str) -> list[str]:
    """Paths, links, ids and numbers of a text, each once, in order.

    >>> anchors("see src/app.py and https://x.test/a, run 4711 on 2026-11-30 (PROJ-12)")
    ['src/app.py', 'https://x.test/a', '4711', '2026-11-30', 'PROJ-12']
    """
    found = (match.group().rstrip(_TRAILING) for match in _ANCHOR.finditer(text))
    return list(dict.fromkeys(anchor for anchor in found if len(anchor) > 1))


def merge_anchors(older: Iterable[str], newer: Iterable[str], most: int) -> tuple[list[str], int]:
    """Anchors in order of last mention, the newest last, at most so many; and how many fell out.

    >>> merge_anchors(["a", "b"], ["c", "a"], 2)
    (['c', 'a'], 1)
    """
    new = list(dict.fromkeys(newer))
    known = set(new)
    merged = [anchor for anchor in dict.fromkeys(older) if anchor not in known] + new
    return merged[-most:] if most else [], max(0, len(merged) - most)


@dataclass(frozen=True)
class Said:
    """A message of a person, kept verbatim."""

    seq: int
    text: str
    tokens: int


def keep_said(older: Sequence[Said], newer: Sequence[Said], room: int) -> tuple[list[Said], int]:
    """The newest messages of people that fit into ``room`` tokens, in order; how many fell out.

    >>> a, b, c = Said(1, "a", 4), Said(3, "b", 4), Said(5, "c", 4)
    >>> [said.text for said in keep_said([a], [b, c], 8)[0]], keep_said([a], [b, c], 8)[1]
    (['b', 'c'], 1)
    """
    kept: list[Said] = []
    left = room
    everything = [*older, *newer]
    for said in reversed(everything):
        if said.tokens > left:
            break
        kept.append(said)
        left -= said.tokens
    return kept[::-1], len(everything) - len(kept)
