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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

BASE: Final = Path(__file__).resolve().parent.parent


class BadSettings(SystemExit):
    """Settings cannot be used; all of them are named, each on a line.

    It ends whatever program reads the settings, with exit code 1, these lines on standard error
    and no traceback: a wrong value is no fault of the program.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"  {problem}\n" for problem in self.problems)
        super().__init__(
            f"Hermes cannot start with these settings:\n{lines}docs/settings.md lists all."
        )


@dataclass(frozen=True)
class Declared:
    """One name that Hermes reads: what ``docs/settings.md`` and ``doctor`` show."""

    name: str
    default: str
    allowed: str
    source: str
    value: str  # in force; "(secret)" for a secret


DECLARED: dict[str, Declared] = {}
_problems: list[str] = []
_collecting = False  # True while the settings are read: then problems wait for refuse_bad()


def collect() -> None:
    """From here to ``refuse_bad`` a bad value is noted and the default stands in for it."""
    global _collecting
    _problems.clear()
    _collecting = True


def refuse(problem: str) -> None:
    """Note that settings cannot be used, in a sentence that names setting and value.

    Raises:
        BadSettings: at once when nobody collects.
    """
    if not _collecting:
        raise BadSettings([problem])
    if problem not in _problems:
        _problems.append(problem)


def refuse_bad() -> None:
    """Stop collecting.

    Raises:
        BadSettings: with everything that was noted.
    """
    global _collecting
    _collecting = False
    if _problems:
        raise BadSettings(_problems)


def _read_file(path: Path) -> dict[str, str]:
    """Lines of NAME=value; quotes round a value are taken off, ``#`` begins a comment line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{path} cannot be read: {error}.")
        return {}
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip().isidentifier():
            refuse(f"{path}, line {number}, is not NAME=value.")
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[name.strip()] = value
    return values


def var_folder() -> Path:
    """The folder that holds everything Hermes keeps on this machine (``HERMES_VAR``)."""
    return Path(text("HERMES_VAR", default=str(BASE / "var")) or BASE / "var").absolute()


_files: dict[str, Mapping[str, str]] = {}


def _file_values(name: str) -> Mapping[str, str]:
    """Values of ``var/<name>``, read once a process."""
    if name not in _files:
        _files[name] = _read_file(var_folder() / name)
    return _files[name]


def names_given() -> dict[str, str]:
    """Every name of ours that somebody set, with where; known to us or not."""
    given = {name: "environment" for name in os.environ if name.startswith("HERMES_")}
    for name in _file_values("hermes.env"):
        given.setdefault(name, "var/hermes.env")
    return given


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


def _read(
    name: str, default: T, allowed: str, convert: Callable[[str], T], *, secret: bool = False
) -> T:
    raw, source = _raw(name)
    value = default
    if raw is not None:
        try:
            value = convert(raw.strip())
        except ValueError:
            shown = "(secret)" if secret else repr(raw)
            refuse(f"{name}={shown} (from {source}) is not {allowed}.")
    DECLARED[name] = Declared(
        name, str(default), allowed, source, "(secret)" if secret else str(value)
    )
    return value


def text(name: str, *, default: str = "", choices: tuple[str, ...] = ()) -> str:
    """The value as text; with ``choices``, one of them."""

    def convert(raw: str) -> str:
        if choices and raw not in choices:
            raise ValueError(raw)
        return raw

    return _read(name, default, " | ".join(choices) if choices else "text", convert)


def secret_text(name: str) -> str:
    """The value as text; neither its default nor its value is ever shown."""
    return _read(name, "", "text", str, secret=True)


def url(name: str, *, schemes: tuple[str, ...], secret: bool = False) -> str:
    """An address with one of ``schemes`` and a host, or nothing; a ``secret`` one is not shown."""

    def convert(raw: str) -> str:
        parts = urlsplit(raw)
        if raw and (parts.scheme not in schemes or not (parts.netloc or parts.path.strip("/"))):
            raise ValueError(raw)
        return raw

    shown = " or ".join(f"{scheme}://" for scheme in schemes)
    return _read(name, "", f"an address that begins with {shown}", convert, secret=secret)


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


def names(name: str, *, default: tuple[str, ...] = (), secret: bool = False) -> list[str]:
    """A list, separated by commas; a ``secret`` one is never shown."""
    raw = _read(name, ",".join(default), "a list with commas", str, secret=secret)
    return [item.strip() for item in raw.split(",") if item.strip()]


def kept_secret(name: str, file: str) -> str:
    """The secret ``name``; without one it is made once and kept in ``var/<file>``, mode 0600."""
    value = secret_text(name)
    if value:
        return value
    path = var_folder() / file
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _kept(path)
    except OSError as error:
        refuse(f"{path}, which holds {name}, cannot be read or written: {error.strerror}.")
        return ""


def _kept(path: Path) -> str:
    if not path.exists():
        # Written aside and linked: another process sees the whole secret or none.
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
        Path(aside).unlink()
    return path.read_text(encoding="ascii").strip()
