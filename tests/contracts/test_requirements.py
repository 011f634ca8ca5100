"""Lock files: every package pinned and hashed, the same versions in both, none unexplained."""

from __future__ import annotations

import re

from hermes import env

from .sources import page

FOLDER = env.BASE / "requirements"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ;.*?)?(?: \\)?$", re.M)


def pins(name: str) -> dict[str, str]:
    return {
        package.lower().replace("_", "-"): version
        for package, version in PIN.findall((FOLDER / name).read_text(encoding="utf-8"))
    }


def asked(name: str) -> set[str]:
    """The packages of an ``.in`` file."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return {
        re.split(r"[\[~<>=;! ]", line)[0].lower().replace("_", "-")
        for line in lines
        if line and not line.startswith(("-", "#"))
    }


def test_every_package_is_pinned_with_hashes() -> None:
    for path in FOLDER.glob("*.lock"):
        blocks = re.split(r"\n(?=[A-Za-z0-9])", path.read_text(encoding="utf-8"))
        packages = [block for block in blocks if not block.startswith(("#", "-")) and block.strip()]
        assert packages, path.name
        for block in packages:
            assert PIN.match(block), f"{path.name}: {block[:60]}"
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), f"{path.name}: {block[:60]}"


def test_both_lock_files_hold_the_same_versions() -> None:
    runtime, dev = pins("runtime.lock"), pins("dev.lock")
    assert {name: version for name, version in runtime.items() if dev.get(name) != version} == {}
    assert asked("runtime.in") <= set(runtime)
    assert asked("dev.in") <= set(dev)


def test_every_dependency_is_explained() -> None:
    text = page("docs/decisions/0011-dependencies.md").lower().replace("_", "-")
    told = set(re.findall(r"`([a-z0-9.-]+)`", text))
    assert (asked("runtime.in") | asked("dev.in")) - told == set()
    rows = set(re.findall(r"^\| `([a-z0-9.-]+)`", text, re.M))
    optional = set(pins("local-model.lock"))
    assert rows - asked("runtime.in") - asked("dev.in") - optional == set()
