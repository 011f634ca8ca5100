"""docs/state-machines.md draws every status, and every move that the code allows."""

from __future__ import annotations

import re

import pytest
from django.apps import apps

from sessions_app.domain import END_CLASS, EndReason

from .sources import page, section

PAGE = "docs/state-machines.md"
EDGE = re.compile(r"^\s*(\S+) --> (\S+?)(?:\s*: *(.+))?$", re.M)
MOVED = [model for model in apps.get_models() if hasattr(model, "MOVES")]


def chart(title: str) -> list[tuple[str, str, str]]:
    """(from, to, letters) of each edge in the chart under a heading."""
    found = re.search(r"```mermaid\n(.*?)```", section(page(PAGE), title), re.S)
    assert found, f"{title} has no chart"
    return EDGE.findall(found[1])


@pytest.mark.parametrize("model", MOVED, ids=lambda model: model.__name__)
def test_every_move_is_an_edge_and_the_reverse(model) -> None:
    drawn = {(frm, to) for frm, to, _ in chart(model.__name__) if "[*]" not in (frm, to)}
    allowed = {(str(frm), str(to)) for frm, targets in model.MOVES.items() for to in targets}
    assert drawn == allowed


@pytest.mark.parametrize("model", MOVED, ids=lambda model: model.__name__)
def test_every_status_is_drawn_and_those_that_end_lead_out(model) -> None:
    edges = chart(model.__name__)
    statuses = {value for value, _ in model._meta.get_field("status").choices}
    ends = statuses - {str(status) for status in model.MOVES}
    assert {name for frm, to, _ in edges for name in (frm, to)} - {"[*]"} == statuses
    assert {frm for frm, to, _ in edges if to == "[*]"} == ends


@pytest.mark.parametrize("model", MOVED, ids=lambda model: model.__name__)
def test_every_letter_is_explained_and_the_reverse(model) -> None:
    used = {
        letter.strip() for *_, letters in chart(model.__name__) for letter in letters.split(",")
    } - {""}
    explained = re.findall(r"^\| ([a-z]) \|", section(page(PAGE), model.__name__), re.M)
    assert len(explained) == len(set(explained))
    assert set(explained) == used


def test_every_end_reason_has_its_class_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section(page(PAGE), "Why a session ends"), re.M)
    assert dict(rows) == {str(reason): str(END_CLASS[reason]) for reason in EndReason}
    assert len(rows) == len(EndReason)
