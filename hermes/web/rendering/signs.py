"""Signs that would do something to the page instead of being read."""

from __future__ import annotations

from typing import Final

# One sign for one: offsets in the text stay what they are.
_SHOWN: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str) -> str:
    """The text with control codes as visible marks; its length stays the same.

    >>> visible("a\\x1b[2J\\tb")
    'a␛[2J\\tb'
    """
    return text.translate(_SHOWN)
