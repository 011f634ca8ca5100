"""docs/frames.md and the types of the socket say the same, in both directions."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing

import pytest

from hermes.web import frames, shapes
from sessions_app.domain import Code

from .sources import modules, page, section

PAGE = "docs/frames.md"
ENVELOPE = {"type", "n", "ref"}
# Instead of ``html`` for clients with ``?html=0``, which the rules of the page tell once.
DATA = {"messages"}


def rows(title: str) -> dict[str, tuple[str, ...]]:
    """The cells behind each type of a table; a row may name several."""
    found: dict[str, tuple[str, ...]] = {}
    for line in section(page(PAGE), title).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            for name in re.findall(r"`([\w.]+)`", cells[0]):
                assert name not in found, f"{name} is told twice"
                found[name] = tuple(cells[1:])
    return found


def named(cell: str) -> set[str]:
    """The names in code that a cell tells, those inside of braces included."""
    code = " ".join(re.findall(r"`([^`]+)`", cell))
    return set(re.findall(r"[a-z_]+", re.sub(r"\[\{.*?\}\]|\{.*?\}", "", code)))


def test_every_frame_of_clients_is_told_and_the_reverse() -> None:
    assert set(rows("From the client")) == set(frames.COMMANDS)


@pytest.mark.parametrize("kind", sorted(frames.COMMANDS))
def test_its_fields_are_told_and_the_reverse(kind: str) -> None:
    fields = {field.name for field in dataclasses.fields(frames.COMMANDS[kind])} - {"ref"}
    assert named(rows("From the client")[kind][0]) == fields


def test_every_frame_of_the_server_is_told_and_the_reverse() -> None:
    assert set(rows("From the server")) == set(shapes.TOLD)


@pytest.mark.parametrize("kind", sorted(shapes.TOLD))
def test_its_keys_are_told(kind: str) -> None:
    shape = shapes.TOLD[kind]
    told = set(
        re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", rows("From the server")[kind][0])))
    )
    whole = set(typing.get_type_hints(shapes.Hello)) if kind == "session.changed" else set()
    shared = [other for other, each in shapes.TOLD.items() if each is shape]
    if len(shared) == 1:  # a shape that several frames share has keys that only some of them use
        assert set(typing.get_type_hints(shape)) - ENVELOPE - DATA - whole - told == set()


def test_every_shape_of_a_frame_is_one_that_is_told() -> None:
    made = {
        each
        for each in vars(shapes).values()
        if typing.is_typeddict(each) and "type" in typing.get_type_hints(each)
    }
    tree = modules()["hermes/web/shapes.py"]
    bases = {
        ast.unparse(base)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    frames_of_their_own = {each for each in made if each.__name__ not in bases}
    assert frames_of_their_own - set(shapes.TOLD.values()) == set()


def test_every_refusal_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", section(page(PAGE), "Codes of `error`")))
    assert {str(code) for code in Code} - told == set()
