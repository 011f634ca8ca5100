"""The product's own source files, pages and syntax trees."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hermes import env

APPS = ("hermes", "sessions_app", "compression_app", "processes_app")


def name(path: Path) -> str:
    """The path inside the repository."""
    return path.relative_to(env.BASE).as_posix()


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product but migrations, parsed, by its path."""
    return {
        name(path): ast.parse(path.read_text(encoding="utf-8"))
        for app in APPS
        for path in sorted((env.BASE / app).rglob("*.py"))
        if "migrations" not in path.parts
    }


def called(node: ast.AST) -> str:
    """The last name of what a call calls; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    target = node.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def page(path: str) -> str:
    """The text of a page."""
    return (env.BASE / path).read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Every page of the repository."""
    return [
        *sorted(env.BASE.glob("*.md")),
        *sorted((env.BASE / "docs").rglob("*.md")),
        *(path for app in APPS for path in sorted((env.BASE / app).rglob("*.md"))),
    ]


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    head = re.search(rf"^(#+) {re.escape(title)}$", text, re.M)
    assert head, f"there is no heading {title!r}"
    rest = text[head.end() :]
    following = re.search(rf"^#{{1,{len(head[1])}}} ", rest, re.M)
    return rest[: following.start()] if following else rest


def tracked() -> Iterator[Path]:
    """Every text file that the repository keeps, or would keep."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=env.BASE,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    found = [env.BASE / line for line in names] or [
        path
        for path in env.BASE.rglob("*")
        if not {".venv", ".git", "build", "var", "__pycache__"} & set(path.parts)
    ]
    for path in found:
        if path.is_file() and not path.is_symlink() and path.suffix not in {".png", ".woff2"}:
            yield path
