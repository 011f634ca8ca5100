"""TeX as MathML, where it can be read; else the TeX as it was written."""

from __future__ import annotations

from typing import Final

from django.utils.html import escape
from latex2mathml.converter import convert

LONGEST: Final = 2_000  # code points of one formula
DEEPEST: Final = 40  # nested braces: the converter is recursive


def _depth(source: str) -> int:
    depth = deepest = 0
    for sign in source:
        depth += (sign == "{") - (sign == "}")
        deepest = max(deepest, depth)
    return deepest


def formula(source: str, *, is_display: bool) -> str:
    """A formula; one that cannot be converted is shown as code."""
    if len(source) <= LONGEST and _depth(source) <= DEEPEST and "\\left" * DEEPEST not in source:
        try:
            return str(convert(source.strip(), display="block" if is_display else "inline"))
        except Exception:  # noqa: S110 - the converter raises whatever it runs into
            pass
    return f"<code>{escape(source)}</code>"
