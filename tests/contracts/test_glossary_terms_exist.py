"""docs/glossary.md: what a term names in the code is there."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from .sources import page

ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.*?) \|$", re.M)
ROWS = ROW.findall(page("docs/glossary.md"))


def resolve(dotted: str) -> object:
    """The object of a dotted name, however much of it is the module."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            meta = getattr(found, "_meta", None)
            fields = {field.name: field for field in getattr(meta, "fields", ())}
            found = fields[part] if part in fields else getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def test_there_are_terms_in_order() -> None:
    terms = [term.lower() for term, *_ in ROWS]
    assert len(terms) > 20
    assert terms == sorted(terms)


@pytest.mark.parametrize(("term", "code"), [(term, code) for term, _, code in ROWS])
def test_the_term_names_something(term: str, code: str) -> None:
    for dotted in re.findall(r"`([a-z_]+(?:\.\w+)+)`", code):
        resolve(dotted)
