"""How PostgreSQL's programs are run by root, whom they refuse to serve.

As root they run in a user namespace in which root's uid has another number: they see an ordinary
user, the kernel sees the owner of the files, and no system user, permission or owner changes.
Where that is forbidden they run as an unprivileged uid, if it can reach the paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .trouble import CannotStart

NOBODY: Final = 65534


@dataclass(frozen=True)
class Privileges:
    """How a program is started, and which uid owns what it writes."""

    prefix: tuple[str, ...]
    owner: int
    uid: int | None = None  # None: stay who we are

    def run(
        self, command: Sequence[str | Path], *, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` to its end; its output is in the result, its exit code is not judged."""
        return subprocess.run(
            [*self.prefix, *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            cwd="/",
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},  # no PG* of ours
        )


def _namespace() -> tuple[str, ...]:
    """The prefix that runs a program in a one-uid user namespace; empty where it is forbidden."""
    unshare = shutil.which("unshare")
    if not sys.platform.startswith("linux") or unshare is None:
        return ()
    prefix = (unshare, "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")
    trial = subprocess.run(
        [*prefix, "/bin/sh", "-c", f'[ "$(id -u)" = {NOBODY} ]'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return prefix if trial.returncode == 0 else ()


def privileges(program: Path, folder: Path, *, namespaces: bool = True) -> Privileges:
    """How ``program`` can be run with its data somewhere under ``folder``.

    Raises:
        CannotStart: we are root, and neither way is open.
    """
    if os.geteuid() != 0:
        return Privileges((), os.geteuid())
    prefix = _namespace() if namespaces else ()
    if prefix:
        return Privileges(prefix, 0)
    as_nobody = Privileges((), NOBODY, NOBODY)
    reach = as_nobody.run(["/bin/sh", "-c", '[ -x "$1" ] && [ -x "$2" ]', "sh", program, folder])
    if reach.returncode == 0:
        return as_nobody
    raise CannotStart(
        "PostgreSQL does not run as root, and this machine allows no user namespaces. "
        f"Start as an ordinary user, make {program} and {folder} reachable for others, "
        "or set DATABASE_URL to a server of your own."
    )
