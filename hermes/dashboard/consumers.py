"""The socket of the dashboard (``docs/frames.md``): it shows, and takes no command but to pause."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hermes.lib.sockets import (
    CROWDED_SECONDS,
    FORBIDDEN,
    MALFORMED,
    TOO_BIG,
    TOO_MANY,
    Rate,
    Socket,
    in_thread,
)
from hermes.lib.zones import zone_of

from . import watching
from .domain import RANGES
from .hub import Desk, desk
from .watching import Part, View

FRAME_CHARACTERS: Final = 1_000
FRAMES_A_MINUTE: Final = 120


class DeskSocket(Socket):
    """One page that shows the dashboard, or does not at the moment."""

    view: View
    desk: Desk

    def prepare(self) -> None:
        """Nothing is shown before the page has said what it looks at."""
        self.desk = desk()
        self._has_view = False
        self._told: dict[str, bytes] = {}
        self._frames = Rate(FRAMES_A_MINUTE)

    async def admit(self) -> int | None:
        """For whom the page is."""
        may = await in_thread(watching.permitted)({self.viewer.user_id})
        return None if self.viewer.user_id in may else FORBIDDEN

    def end(self) -> None:
        """Nobody looks here any more."""
        self.desk.discard(self)

    # --- What the hub calls

    def allow(self, may: frozenset[str]) -> None:
        """Look at what somebody sees who may do these."""
        if may != self.view.may:
            self.view = replace(self.view, may=may)

    async def show(self, parts: Mapping[str, Part]) -> None:
        """Send the parts that differ from what was sent."""
        new = {name: part for name, part in parts.items() if self._told.get(name) != part.mark}
        if new:
            self._told |= {name: part.mark for name, part in new.items()}
            await self.tell({"type": "parts", "parts": {n: part.html for n, part in new.items()}})

    # --- Being told

    async def take(self, content: str | None) -> None:
        """Look, pause or go on; what is anything else closes the socket."""
        if self._frames.take():
            return await self.leave(TOO_MANY, retry_after=CROWDED_SECONDS)
        if content is not None and len(content) > FRAME_CHARACTERS:
            return await self.leave(TOO_BIG)
        match _read(content):
            case {"type": "watch", "range": str(range_), "zone": str(zone)} if (
                range_ in RANGES and zone in watching.ZONES
            ):
                own = zone_of(self.scope["cookies"]) if zone == "local" else None
                self.view = View(range_, zone, own)
                self._has_view, self._told = True, {}
                self.desk.add(self)
            case {"type": "pause"}:
                self.desk.discard(self)
            case {"type": "resume"} if self._has_view:
                self.desk.add(self)
            case _:
                await self.leave(MALFORMED)


def _read(content: str | None) -> Any:
    try:
        return json.loads(content or "")
    except (ValueError, RecursionError):
        return None
