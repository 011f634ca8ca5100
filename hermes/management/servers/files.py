"""Files and folders that nobody else may read."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from .trouble import CannotStart


def private_folder(path: Path) -> Path:
    """Make ``path`` a folder of mode 0700; return it.

    Raises:
        CannotStart: something else is there, or it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise CannotStart(
            f"The folder {path} cannot be made or kept private ({error.strerror}). "
            "Set HERMES_VAR to a folder of your own."
        ) from error
    return path


def own_folder(path: Path, owner: int) -> Path:
    """Make ``path``, in a place that others may write to, a folder of ``owner``'s alone.

    Raises:
        CannotStart: somebody else made it first.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        if owner != os.geteuid():
            os.chown(path, owner, -1)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise CannotStart(f"{path} belongs to somebody else. Remove it and start again.")
    return path


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, mode 0600; a reader sees the old whole or the new whole."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def kept_password(path: Path) -> str:
    """The password in ``path``; made there once, mode 0600."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    # Letters and digits only: it stands in URLs, in SQL and in a configuration file.
    password = secrets.token_hex(24)
    write_private(path, password + "\n")
    return password


def last_lines(path: Path, number: int = 3) -> str:
    """The last lines of a log, on one line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " / ".join(line.strip() for line in lines[-number:])


def shorten_log(path: Path, limit: int = 10 * 1024 * 1024) -> None:
    """Put a log of more than ``limit`` bytes aside; one older part is kept."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > limit:
            path.replace(path.with_suffix(".old.log"))
