"""The pure part of telling background work: what a socket has been told, and what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Part: TypeAlias = Mapping[str, Any]
Frame: TypeAlias = dict[str, Any]

ACTIVE: Final = frozenset({"starting", "running"})
UNSETTLED: Final = frozenset({"pending", "accepted"})


@dataclass(frozen=True)
class Tasks:
    """The background work of a chat at one moment, as far as it is told."""

    mark: str = ""  # what the poll compares
    processes: Mapping[str, Part] = field(default_factory=dict)
    approvals: Mapping[int, Part] = field(default_factory=dict)
    completions: Mapping[int, Part] = field(default_factory=dict)
    open: int = 0  # that run, or wait for the person
    htmls: Mapping[str, str] = field(default_factory=dict)  # by ``name_of``, of what changed

    @property
    def followed(self) -> dict[str, list[Any]]:
        """What is read again although it may not be among the newest: it was not over."""
        return {
            "processes": [uid for uid, each in self.processes.items() if each["state"] in ACTIVE],
            "approvals": [pk for pk, each in self.approvals.items() if each["state"] == "open"],
            "events": [pk for pk, each in self.completions.items() if each["state"] in UNSETTLED],
        }


def name_of(kind: str, key: str | int) -> str:
    """Under which name the fragment of one thing is kept.

    >>> name_of("process", "p1")
    'process:p1'
    """
    return f"{kind}:{key}"


def changed(before: Tasks, now: Tasks) -> dict[str, list[Any]]:
    """The keys of what is not as it was told, by kind."""
    was, is_ = _by_kind(before), _by_kind(now)
    return {
        kind: [key for key, part in parts.items() if part != was[kind].get(key)]
        for kind, parts in is_.items()
    }


def _by_kind(tasks: Tasks) -> dict[str, Mapping[Any, Part]]:
    return {
        "process": tasks.processes,
        "approval": tasks.approvals,
        "completion": tasks.completions,
    }


def changes(before: Tasks | None, now: Tasks) -> list[Frame]:
    """The frames that tell what has changed since; none for the first look, which ``hello`` tells.

    >>> old = Tasks(processes={"p": {"id": "p", "state": "running"}}, open=1)
    >>> new = Tasks(processes={"p": {"id": "p", "state": "ended"}})
    >>> [frame["type"] for frame in changes(old, new)], changes(None, new), changes(new, new)
    (['process.update', 'tasks'], [], [])
    """
    if before is None:
        return []
    kept = _by_kind(now)
    frames: list[Frame] = []
    for kind, keys in changed(before, now).items():
        for key in keys:
            frame: Frame = {"type": f"{kind}.update", kind: kept[kind][key]}
            if (html := now.htmls.get(name_of(kind, key))) is not None:
                frame["html"] = html
            frames.append(frame)
    if frames or before.open != now.open:
        told: Frame = {"type": "tasks", "open": now.open}
        if "tasks" in now.htmls:
            told["html"] = now.htmls["tasks"]
        frames.append(told)
    return frames
