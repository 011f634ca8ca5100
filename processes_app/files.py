"""The folder of one process under the data folder: what its shim wrote, and its output as text."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from hermes.lib.leases import process_start
from hermes.lib.redaction import live

from . import domain

SECRET_MOST: Final = 512  # characters beside a cut that may be a part of a secret
RECENT: Final = 32 * 1024  # bytes of output that a look at a running process reads


def root() -> Path:
    """Where the folders of all processes of this host are; mode 0700."""
    return Path(settings.VAR) / "processes"


def workspace_of(address: str) -> Path:
    """The folder in which the commands of a chat work; made if it is not there."""
    name = hashlib.sha256(address.encode()).hexdigest()[:20]
    folder = Path(settings.HERMES_WORKSPACE) / name
    with contextlib.suppress(FileExistsError):  # a command may have put something else there
        (folder / ".tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Output:
    """The output of a process: redacted, readable, and how much of it there was."""

    text: str
    size: int  # bytes, all
    left_out: int  # bytes between beginning and end that are not kept
    is_text: bool


@dataclass(frozen=True)
class Child:
    """Who a child is."""

    pid: int
    start: str
    started_at: datetime

    def is_alive(self) -> bool:
        """Whether this very process runs; a recycled pid is another one."""
        return bool(self.start) and process_start(self.pid) == self.start


@dataclass(frozen=True)
class Folder:
    """What is known of one process on this host."""

    path: Path

    @classmethod
    def of(cls, uid: str) -> Folder:
        """The folder of a process by its name."""
        return cls(root() / uid)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def make(self, spec: dict[str, Any]) -> None:
        """Make the folder with what the shim reads; once made it is not changed."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path / "spec.new"
        new.touch(mode=0o600)
        new.write_text(json.dumps(spec), encoding="utf-8")
        new.replace(self.path / "spec.json")

    def shim(self) -> Child | None:
        """Who the shim is, once it has begun."""
        found = self._read("shim.json")
        if found is None:
            return None
        return Child(int(found["pid"]), str(found["start"]), datetime.now(UTC))

    def child(self) -> Child | None:
        """Who the child is, once it is known."""
        found = self._read("child.json")
        if found is None:
            return None
        started = datetime.fromtimestamp(float(found["started_at"]), UTC)
        return Child(int(found["pid"]), str(found["start"]), started)

    def exit(self) -> dict[str, Any] | None:
        """How it ended, once it has."""
        return self._read("exit.json")

    def was_begun(self) -> bool:
        """Whether a shim has taken this folder; no second one ever does."""
        return (self.path / "lock").exists()

    def has_survivors(self) -> bool:
        """Whether something of it could not be ended."""
        return (self.path / "survivors").exists()

    def size(self) -> int:
        """How many bytes it has written so far."""
        pieces = self._pieces()
        if pieces:
            offset, path = pieces[-1]
            return offset + _size(path)
        return _size(self.path / "log")

    def _pieces(self) -> list[tuple[int, Path]]:
        found = []
        with contextlib.suppress(OSError):
            for path in self.path.glob("log.*"):
                if path.suffix[1:].isdigit():
                    found.append((int(path.suffix[1:]), path))
        return sorted(found)

    def output(self) -> Output:
        """All of the output that is kept, as a person may read it.

        It is decoded and redacted as a whole, before anything is cut. Beside a gap the half lines
        are left out: half a secret would not be found.
        """
        head, end, size, gap = _bytes(self.path / "log"), b"", 0, 0
        for number, (offset, path) in enumerate(self._pieces()):
            part = _bytes(path)
            if number == 0:
                gap = max(0, offset - len(head))
            end += part
            size = offset + len(part)
        if not gap:
            head, end = head + end, b""
        size = max(size, len(head))
        if not domain.is_text(head) or not domain.is_text(end):
            return Output(f"(not text: {size} bytes)\n", size, gap, is_text=False)
        if not gap:
            return Output(self._shown(head), size, 0, is_text=True)
        text = _without_last_line(self._shown(head))
        rest = _without_first_line(self._shown(end))
        return Output(f"{text}… {gap} bytes not kept …\n{rest}", size, gap, is_text=True)

    def recent(self) -> str:
        """The last of the output as a person may read it; costs the same however much there is."""
        pieces = [path for _, path in self._pieces()] or [self.path / "log"]
        raw = _last_bytes(pieces[-1])
        if not domain.is_text(raw):
            return "(not text)\n"
        text = self._shown(raw)
        is_cut = len(raw) == RECENT or len(pieces) > 1
        return _without_first_line(text) if is_cut else text

    @staticmethod
    def _shown(raw: bytes) -> str:
        return live.redact(domain.readable(raw.decode("utf-8", "replace")))

    def send(self, text: str) -> bool:
        """Type into its terminal; False if nobody reads there."""
        try:
            handle = os.open(self.path / "input", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        with os.fdopen(handle, "wb", buffering=0) as file, contextlib.suppress(OSError):
            file.write(text.encode())
            return True
        return False

    def remove(self) -> None:
        """Delete what is left of it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _without_first_line(text: str) -> str:
    """Redacted text behind a cut: half a secret may stand in its first line, and was not found."""
    at = text.find("\n")
    return text[at + 1 :] if at >= 0 else text[SECRET_MOST:]


def _without_last_line(text: str) -> str:
    """Redacted text before a cut, without the last line, for the same reason."""
    at = text.rfind("\n")
    return text[: at + 1] if at >= 0 else text[:-SECRET_MOST]


def _last_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - RECENT))
            return file.read(RECENT)
    except OSError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
