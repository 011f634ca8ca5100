"""Python blocks in pages compile and import; those marked ``run`` run. Links lead somewhere."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from hermes import env

from .sources import name, pages

BLOCK = re.compile(r"^```(python[^\n]*)\n(.*?)^```$", re.M | re.S)
BLOCKS = [
    pytest.param(info, code, id=f"{name(path)}-{number}")
    for path in pages()
    for number, (info, code) in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")))
]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
AWAITED = {"docs/images/chat-light.png", "docs/images/chat-dark.png", "docs/images/chat-narrow.png"}


@pytest.mark.parametrize(("info", "code"), BLOCKS)
def test_block(info: str, code: str) -> None:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = import_module(node.module)
            for each in node.names:
                assert hasattr(module, each.name), f"{node.module} has no {each.name}"
    if "run" in info.split():
        exec(compile(tree, "snippet", "exec"), ModuleType("snippet").__dict__)


@pytest.mark.parametrize("path", pages(), ids=name)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        there = (path.parent / target).resolve()
        assert there.exists() or name(there) in AWAITED, target
        if anchor and there.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            assert anchor[1:] in {slug(head) for head in heads}, f"{target}{anchor}"
    for anchor in re.findall(r"\]\(#([^)\s]+)\)", text):
        heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
        assert anchor in {slug(head) for head in heads}, anchor


def slug(head: str) -> str:
    """The anchor of a heading.

    >>> slug("`worker_lost`"), slug("How a turn ends")
    ('worker_lost', 'how-a-turn-ends')
    """
    return re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-")


def test_every_page_of_docs_is_in_its_index() -> None:
    index = env.BASE / "docs" / "README.md"
    linked = {
        (index.parent / target).resolve()
        for target, _ in LINK.findall(index.read_text(encoding="utf-8"))
    }
    told = {path.resolve() for path in (env.BASE / "docs").rglob("*.md")} - {index.resolve()}
    assert {name(path) for path in told - linked} == set()
