"""What no file of the repository says: paths of one machine, hosts of registries, plans."""

from __future__ import annotations

import re

import pytest

from .sources import name, pages, tracked

# Put together here, so that this file does not say them itself.
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("deb", "debian", "org"))]
HOSTS += [".".join(("registry", "npmjs", "org")), ".".join(("files", "pythonhosted", "org"))]
PATHS = [f"/{'work'}/", f"/tmp/{'hv'}", f"/tmp/{'wt'}/", "/ro" + "ot/", "/ho" + "me/"]
PLANS = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME|XX" + r"X)\b")


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{name(path)}: {word}"
        for path in tracked()
        for word in [*HOSTS, *PATHS]
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []


def test_no_source_holds_a_plan() -> None:
    found = [
        name(path)
        for path in tracked()
        if path.suffix in {".py", ".md", ".html", ".js", ".css", ".toml"}
        and "vendor" not in path.parts
        and PLANS.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize("path", pages(), ids=name)
def test_a_page_has_one_title(path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    assert len(re.findall(r"^# ", text, re.M)) == 1
