"""Text: what can be stored, what a title is, when two texts are the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import regex

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_VISIBLE: Final = regex.compile(r"[^\p{Default_Ignorable_Code_Point}\p{M}\s\u2800]")
TITLE_LENGTH: Final = 80  # code points; the column holds them


def storable(text: str) -> str:
    """The text with what no database can hold (NUL, lone surrogates) shown as U+FFFD.

    >>> storable("ab\\x00cd") == "ab\\ufffdcd"
    True
    """
    return _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Any) -> Any:
    """The same for every text inside a JSON value.

    >>> storable_json({"a": ["b\\x00"]}) == {"a": ["b\\ufffd"]}
    True
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): storable_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable_json(item) for item in value]
    return value


def text_hash(text: str) -> str:
    """What tells whether a re-sent client id carries the same text.

    >>> text_hash("a") == text_hash("a") != text_hash("b")
    True
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_from(text: str, limit: int = TITLE_LENGTH) -> str:
    """A title from the first words of a text, cut between grapheme clusters; may be empty.

    >>> title_from("  How do\\n I  start? ")
    'How do I start?'
    >>> title_from("word " * 40).endswith("…"), len(title_from("word " * 40)) <= TITLE_LENGTH
    (True, True)
    >>> title_from("👨‍👩‍👧‍👦" * 40).rstrip("…").endswith("👦")
    True
    >>> title_from("a" + "\\u0301" * 400), title_from("\\u200d"), title_from("\\u3164")
    ('', '', '')
    """
    printable = "".join(
        sign for sign in storable(text) if sign in "\n\t\r\u200c\u200d" or sign.isprintable()
    )
    line = " ".join(printable.split()).lstrip("#>*-` ")
    if not _VISIBLE.search(line):
        return ""
    if len(line) <= limit:
        return line
    cut = ""
    for cluster in regex.findall(r"\X", line[: limit * 8]):
        if len(cut) + len(cluster) > limit - 1:
            break
        cut += cluster
    if " " in cut[limit // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return f"{cut.rstrip()}…" if cut.strip() else ""
