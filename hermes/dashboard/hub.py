"""One clock a web process for everybody who looks at the dashboard.

A picture is made once for all who look at the same, and only while somebody does. Before each,
everybody's login and permission are asked for again. A socket is told the parts that differ from
what it was told before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from django.db import DatabaseError

from hermes.lib.sockets import FORBIDDEN, SIGNED_OUT, in_thread
from hermes.lib.viewers import Viewer, signed_out

from . import watching
from .watching import Part, View

logger = logging.getLogger(__name__)

EVERY_SECONDS: Final = 2.0  # between two pictures of one view
SLACK_SECONDS: Final = 0.05  # by which a clock may wake too early
_thread = ThreadPoolExecutor(1, "desk")


class Watcher(Protocol):
    """What the hub needs of a socket."""

    viewer: Viewer
    view: View

    async def show(self, parts: Mapping[str, Part]) -> None:
        """Send what differs from what was sent."""

    async def leave(self, code: int) -> None:
        """Say why, and close."""

    def allow(self, may: frozenset[str]) -> None:
        """Look at what somebody sees who may do these."""


@dataclass(frozen=True)
class Picture:
    """The parts of a view, and when they were made."""

    parts: Mapping[str, Part]
    at: float


class Desk:
    """Those of this process who look at the dashboard now; who pauses is not among them."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._pictures: dict[View, Picture] = {}
        self._came = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, watcher: Watcher) -> None:
        """Show it the dashboard from now on."""
        self._watchers.add(watcher)
        self._came.set()

    def discard(self, watcher: Watcher) -> None:
        """Show it nothing any more."""
        self._watchers.discard(watcher)

    async def _run(self) -> None:
        """Look as often as is due; never stop."""
        while True:
            if not self._watchers:
                self._pictures.clear()
                await self._came.wait()
            self._came.clear()
            begun = time.monotonic()
            try:
                await self._show(await self._allowed(list(self._watchers)))
            except DatabaseError as error:
                logger.warning("dashboard not told yet", extra={"cause": str(error)})
            except Exception:
                logger.exception("dashboard not told yet")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._due(begun) - time.monotonic()):
                    await self._came.wait()

    def _due(self, begun: float) -> float:
        """When the oldest picture is to be made anew; after a fault not at once."""
        due = min((picture.at for picture in self._pictures.values()), default=begun)
        return (due if due + EVERY_SECONDS > begun else begun) + EVERY_SECONDS

    async def _allowed(self, watchers: Sequence[Watcher]) -> list[Watcher]:
        """Those of them who may still look; the others are told to go. Two queries."""
        viewers = list({watcher.viewer for watcher in watchers})
        gone = set(await in_thread(signed_out, _thread)(viewers))
        may = await in_thread(watching.permitted, _thread)({each.user_id for each in viewers})
        allowed = []
        for watcher in watchers:
            if watcher.viewer in gone:
                await self._end(watcher, SIGNED_OUT)
            elif watcher.viewer.user_id not in may:
                await self._end(watcher, FORBIDDEN)
            else:
                watcher.allow(may[watcher.viewer.user_id])
                allowed.append(watcher)
        return allowed

    async def _end(self, watcher: Watcher, code: int) -> None:
        self.discard(watcher)
        await watcher.leave(code)

    async def _show(self, watchers: Sequence[Watcher]) -> None:
        """Make the pictures that are due, and send what differs."""
        now = time.monotonic()
        views = {watcher.view for watcher in watchers}
        for view in self._pictures.keys() - views:
            del self._pictures[view]
        due = {view for view in views if view not in self._pictures or self._is_old(view, now)}
        if due:
            made = await in_thread(watching.pictures, _thread)(due)
            self._pictures |= {view: Picture(parts, now) for view, parts in made.items()}
        for watcher in watchers:
            picture = self._pictures.get(watcher.view)
            if picture is not None and watcher in self._watchers:
                await watcher.show(picture.parts)

    def _is_old(self, view: View, now: float) -> bool:
        return now - self._pictures[view].at >= EVERY_SECONDS - SLACK_SECONDS


@functools.lru_cache(maxsize=1)
def _desk_of(loop: asyncio.AbstractEventLoop) -> Desk:
    return Desk()


def desk() -> Desk:
    """The hub of this process; begun with its first socket."""
    return _desk_of(asyncio.get_running_loop())
