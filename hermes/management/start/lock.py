"""One start command a data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from hermes.management.servers.trouble import CannotStart


def hold(path: Path, what: str) -> IO[str]:
    """Hold the lock until the file that is returned is closed, or the process ends however it does.

    ``what`` is told to whoever finds the lock held.

    Raises:
        CannotStart: another start command holds it.
    """
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "?"
        file.close()
        raise CannotStart(
            f"Hermes already runs on {path.parent.parent} ({holder}). "
            "Stop it first, or choose another data folder with HERMES_VAR."
        ) from error
    file.seek(0)
    file.truncate()
    file.write(f"pid {os.getpid()}, {what}")
    file.flush()
    return file
