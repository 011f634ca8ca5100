"""Typed reading of configuration: the environment first, then two files in the data folder.

Every name that Hermes reads goes through this module, so that ``docs/settings.md`` can be held
against it, and so that a value out of range is refused at start with its name and its range.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

BASE: Final = Path(__file__).resolve().parent.parent


class BadSetting(ValueError):
    """A setting has a value that cannot be used."""


@dataclass(frozen=True)
class Declared:
    """One name that Hermes reads: what ``docs/settings.md`` and ``doctor`` show."""

    name: str
    default: str
    allowed: str
    source: str


DECLARED: dict[str, Declared] = {}


def _read_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def var_folder() -> Path:
    """The folder that holds everything Hermes keeps on this machine (``HERMES_VAR``)."""
    return Path(text("HERMES_VAR", default=str(BASE / "var")) or BASE / "var").absolute()


_files: dict[str, Mapping[str, str]] = {}


def _file_values(name: str) -> Mapping[str, str]:
    """Values of ``var/<name>``, read once a process."""
    if name not in _files:
        _files[name] = _read_file(var_folder() / name)
    return _files[name]


def forget_files() -> None:
    """Make the next look-up read the files in the data folder again."""
    _files.clear()


def _raw(name: str) -> tuple[str | None, str]:
    if name in os.environ:
        return os.environ[name], "environment"
    if name == "HERMES_VAR":  # it says where the files are
        return None, "default"
    for file in ("hermes.env", "embedded.env"):
        if name in _file_values(file):
            return _file_values(file)[name], f"var/{file}"
    return None, "default"


def _read(name: str, default: T, allowed: str, convert: Callable[[str], T]) -> T:
    raw, source = _raw(name)
    DECLARED[name] = Declared(name, str(default), allowed, source)
    if raw is None:
        return default
    try:
        return convert(raw.strip())
    except ValueError as error:
        raise BadSetting(f"{name}={raw!r} (from {source}) is not {allowed}.") from error


def text(name: str, *, default: str = "", choices: tuple[str, ...] = ()) -> str:
    """The value as text; with ``choices``, one of them."""

    def convert(raw: str) -> str:
        if choices and raw not in choices:
            raise ValueError(raw)
        return raw

    return _read(name, default, " | ".join(choices) if choices else "text", convert)


def secret_text(name: str) -> str:
    """The value as text; its default and value are never shown."""
    return _read(name, "", "secret text", str)


def integer(name: str, *, default: int, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``, both included."""

    def convert(raw: str) -> int:
        value = int(raw)
        if not low <= value <= high:
            raise ValueError(raw)
        return value

    return _read(name, default, f"a whole number from {low} to {high}", convert)


def number(name: str, *, default: float, low: float, high: float) -> float:
    """A number from ``low`` to ``high``, both included."""

    def convert(raw: str) -> float:
        value = float(raw)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(raw)
        return value

    return _read(name, default, f"a number from {low:g} to {high:g}", convert)


def boolean(name: str, *, default: bool) -> bool:
    """``1``, ``true``, ``yes``, ``on`` or their opposites."""
    words = {"1": True, "true": True, "yes": True, "on": True}
    words |= {"0": False, "false": False, "no": False, "off": False}

    def convert(raw: str) -> bool:
        if raw.lower() not in words:
            raise ValueError(raw)
        return words[raw.lower()]

    return _read(name, default, "true or false", convert)


def names(name: str, *, default: tuple[str, ...] = ()) -> list[str]:
    """A list, separated by commas."""
    raw = text(name, default=",".join(default))
    return [item.strip() for item in raw.split(",") if item.strip()]


def kept_secret(name: str, file: str) -> str:
    """The secret ``name``; without one it is made once and kept in ``var/<file>``, mode 0600."""
    value = secret_text(name)
    if value:
        return value
    path = var_folder() / file
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # Written aside and linked: another process sees the whole secret or none.
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{file}-")
        with os.fdopen(handle, "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
        Path(aside).unlink()
    return path.read_text(encoding="ascii").strip()
