"""Processes out of the peer's checkpoint file: read, checked for being ours, restored."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from hermes.lib.db import db_now
from hermes.lib.leases import Owner, process_start
from sessions_app.domain import storable_json
from sessions_app.models import Chat, Session

from . import domain, intake

logger = logging.getLogger(__name__)

# It is a folder's name and part of addresses too.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
KNOWN: Final = frozenset(
    {
        "session_id",
        "command",
        "cwd",
        "pid",
        "pid_scope",
        "host_start_time",
        "started_at",
        "session_key",
        "notify_on_complete",
        "parent_session_id",
    }
)


@dataclass
class Restored:
    """How many processes were restored, and why which were not."""

    count: int = 0
    skipped: list[str] = field(default_factory=list)


def start_of(pid: int) -> float | None:
    """The kernel's start time of a process in ticks since boot; None if it is gone."""
    started = process_start(pid)
    return None if started is None else float(started)


def _booted_at() -> float:
    """When this machine was started, in seconds since 1970; 0 where that cannot be told."""
    try:
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


def is_ours(pid: int, told: float) -> bool:
    """Whether ``pid`` is the process that the file means: its start time, as ticks or as a date."""
    ticks = start_of(pid)
    if ticks is None:
        return False
    date = _booted_at() + ticks / os.sysconf("SC_CLK_TCK")
    return told in {ticks, float(int(ticks))} or abs(date - told) < 2


def restore(path: Path) -> Restored:
    """Restore every process of a checkpoint file that still runs and is ours.

    Raises:
        ValueError: the file is not a checkpoint.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} cannot be read as a checkpoint: it is nested too deep") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a checkpoint: {error}") from error
    if isinstance(entries, dict):
        entries = entries.get("processes")
    if not isinstance(entries, list):
        raise ValueError(f"{path} holds no list of processes")  # noqa: TRY004 - one error to catch
    result = Restored()
    for number, entry in enumerate(entries, 1):
        name, problem = "", "it is no object"
        if isinstance(entry, dict):
            told = storable_json(entry)
            name, problem = domain.one_line(str(told.get("session_id") or ""), 60), _restore(told)
        if problem:
            result.skipped.append(f"{name or f'entry {number}'}: {problem}")
        else:
            result.count += 1
    return result


def _restore(entry: Mapping[str, Any]) -> str:
    """Restore one process; return why not, or nothing."""
    uid, command = entry.get("session_id"), entry.get("command")
    if not isinstance(uid, str) or not _NAME.fullmatch(uid) or not isinstance(command, str):
        return "it has no usable id or command"
    try:
        pid = int(entry.get("pid") or 0)
        told = float(entry.get("host_start_time") or 0)
        started = datetime.fromtimestamp(float(entry.get("started_at") or 0), UTC)
        interval = timedelta(seconds=float(entry.get("watcher_interval") or 0))
        next_check_at = db_now() + interval if interval > timedelta(0) else None
    except (TypeError, ValueError, OverflowError, OSError):
        return "one of its numbers is none"
    if entry.get("pid_scope", "host") != "host":
        scope = domain.one_line(str(entry.get("pid_scope")), 60)
        return f"its pid is of another scope ({scope})"
    if pid <= 1 or not told:
        return "it has no identity: pid and start time are needed"
    if not is_ours(pid, told):
        return f"pid {pid} is gone, or belongs to another process by now"
    address = str(entry.get("session_key") or "")[:200]
    stamp = entry.get("parent_session_id") or None
    me = Owner.me()
    landed = intake.import_running(
        uid=uid,
        started_at=started,
        next_check_at=next_check_at,
        command=command,
        cwd=str(entry.get("cwd") or "")[:1000],
        origin_chat=address,
        origin_session=None if stamp is None else str(stamp)[:64],
        owner_id_meant=_owner(address, stamp),
        notify=bool(entry.get("notify_on_complete")),
        host=socket.gethostname(),
        boot_id=me.boot,
        pid=pid,
        pid_start=process_start(pid) or f"{told:g}",
        imported={name: value for name, value in entry.items() if name not in KNOWN},
    )
    return "" if landed else "it was restored before"


def _owner(address: str, stamp: object) -> int | None:
    """Whose process it is: the owner of the stamped session's chat, else of the chat it names."""
    if stamp is not None:
        rows = Session.objects.filter(key=str(stamp)).values_list("chat__owner_id", flat=True)
        return rows.first()
    return Chat.objects.filter(key=address).values_list("owner_id", flat=True).first()
