"""What tells the sockets of this process that something moved: hints from the layer, and a clock.

One :class:`Hub` a process. Hints bring text and wake sockets; whatever of them is lost, one query
a second finds. Text of a running turn is put together once a process, for all its sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from channels.layers import get_channel_layer
from django.conf import settings
from django.db import DatabaseError

from hermes.lib.hints import chat_group, session_group
from hermes.lib.sockets import Rate, in_thread
from hermes.lib.viewers import Viewer, signed_out
from sessions_app.domain import storable

from . import reading
from .cursor import Cursor, Move, Stream
from .numbers import poll
from .rendering import BlockSplitter

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 5.0  # between two polls while no socket is open
LOGIN_SECONDS: Final = 3.0  # between two looks at the logins of all sockets
JOIN_SECONDS: Final = 0.3  # for which a new socket waits for its groups
STREAMS_KEPT: Final = 64  # of which nobody may be looking: a page that is loaded again
REPAIR_SECONDS: Final = 0.3  # between two looks for text that hints did not bring
NEVER: Final = datetime.min.replace(tzinfo=UTC)

_clock_thread = ThreadPoolExecutor(1, "poller")


class Socket(Protocol):
    """What the hub needs of a socket."""

    viewer: Viewer
    chat_id: int
    cursor: Cursor

    def wake(self, *, rows: bool = False, sidebar: bool = False, version: int = 0) -> None:
        """Send what is new; with ``rows``, or while it is behind ``version``, read first."""

    def reasoning(self, event: dict[str, Any]) -> None:
        """Pass thinking aloud on."""

    def tick(self) -> None:
        """A second has passed."""

    def sign_out(self) -> None:
        """The login has ended."""


class Hub:
    """The sockets of this process, and what wakes them."""

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self._rates: dict[int, Rate] = {}
        self._chats: dict[int, set[Socket]] = defaultdict(set)
        self._sessions: dict[int, set[Socket]] = defaultdict(set)
        self._places: dict[Socket, int] = {}  # the session under which a socket is filed
        self._streams: WeakValueDictionary[tuple[int, int], Stream] = WeakValueDictionary()
        self._recent: deque[Stream] = deque(maxlen=STREAMS_KEPT)
        self._repairs: set[tuple[int, int]] = set()
        self._rendering: set[Stream] = set()
        self._touched: dict[int, datetime] = {}
        self._joined: set[str] = set()
        self._regroup = asyncio.Event()
        self._regrouped = asyncio.Event()
        self._came = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._login_at = time.monotonic()
        for run in (self._listen, self._clock):
            self.spawn(run())

    # --- Sockets

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that no socket's end may cancel."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def add(self, socket: Socket) -> None:
        """Let a socket hear of its chat and session; waits a moment until the layer has it."""
        self.sockets.add(socket)
        self._chats[socket.chat_id].add(socket)
        self.file(socket, socket.cursor.session)
        self._came.set()
        if socket.viewer.user_id not in self._touched:
            await self._first_seen(socket.viewer.user_id)
        if not self._groups() <= self._joined:
            with contextlib.suppress(TimeoutError):  # the clock finds what hints would have said
                async with asyncio.timeout(JOIN_SECONDS):
                    await self._regrouped.wait()

    def file(self, socket: Socket, session: int | None) -> None:
        """Let a socket hear of another session than before."""
        before = self._places.get(socket)
        if before == session and session is not None:
            return
        if before is not None:
            self._drop(self._sessions, before, socket)
            del self._places[socket]
        if session is not None:
            self._sessions[session].add(socket)
            self._places[socket] = session
        self._regrouped.clear()
        self._regroup.set()

    def discard(self, socket: Socket) -> None:
        """Forget a socket."""
        self.sockets.discard(socket)
        self._drop(self._chats, socket.chat_id, socket)
        if (session := self._places.pop(socket, None)) is not None:
            self._drop(self._sessions, session, socket)
        self._regroup.set()

    @staticmethod
    def _drop(index: dict[int, set[Socket]], key: int, socket: Socket) -> None:
        index[key].discard(socket)
        if not index[key]:
            del index[key]

    def rate(self, user_id: int) -> Rate:
        """How often a person may send, over all their sockets."""
        if len(self._rates) > 10_000:
            self._rates.clear()
        return self._rates.setdefault(user_id, Rate(settings.HERMES_SENDS_A_MINUTE))

    def _wake(self, sockets: Iterable[Socket], *, rows: bool = False) -> None:
        for socket in list(sockets):
            socket.wake(rows=rows)

    # --- Streams

    def stream(self, turn: int, run: int, session: int) -> Stream:
        """The text of a run, as this process puts it together."""
        found = self._streams.get((turn, run))
        if found is None:
            found = self._streams[turn, run] = Stream(turn, run, session)
            self._recent.append(found)
        return found

    def grew(self, stream: Stream) -> None:
        """Tell the sockets of a stream that it has more text; render it for those that want it."""
        sockets = self._sessions.get(stream.session, set())
        self._wake(sockets)
        if any(socket.cursor.html for socket in sockets) and stream not in self._rendering:
            self._rendering.add(stream)
            self.spawn(self._render(stream))

    async def _render(self, stream: Stream) -> None:
        """Close blocks until all text of the stream has been looked at."""
        try:
            while stream.splitter is None or stream.fed < stream.end:
                base, part = stream.base or 0, stream.part
                if stream.splitter is None:
                    stream.splitter, stream.fed = BlockSplitter(), base
                text = stream.slice(stream.fed)
                closed = await in_thread(reading.closed_blocks)(stream.splitter, text, base)
                if stream.part != part:
                    continue
                stream.fed += len(text)
                stream.blocks += closed
                self._wake(self._sessions.get(stream.session, set()))
        except Exception:
            logger.exception("answer not rendered", extra={"turn": stream.turn})
        finally:
            self._rendering.discard(stream)

    def repair(self, stream: Stream) -> None:
        """Read from rows what hints have not brought."""
        key = (stream.turn, stream.run)
        if stream.base is not None and key not in self._repairs:
            self._repairs.add(key)
            self.spawn(self._repair(stream))

    async def _repair(self, stream: Stream) -> None:
        try:
            while self._is_followed(stream):
                at = stream.end
                text = await in_thread(reading.stored)(stream.turn, stream.run, at)
                if stream.take(at, text) is Move.GREW:
                    self.grew(stream)
                if not stream.has_gap:
                    return
                await asyncio.sleep(REPAIR_SECONDS)
        except DatabaseError as error:
            logger.warning("stream not repaired", extra={"cause": str(error)})
        finally:
            self._repairs.discard((stream.turn, stream.run))

    def _is_followed(self, stream: Stream) -> bool:
        sockets = self._sessions.get(stream.session, set())
        return any(socket.cursor.follows(stream.turn, stream.run) for socket in sockets)

    # --- Hints

    def _groups(self) -> set[str]:
        return {*map(session_group, self._sessions), *map(chat_group, self._chats)}

    async def _listen(self) -> None:
        """Take hints from the layer, whenever it is there."""
        while True:
            layer = get_channel_layer()
            if layer is None:
                return
            joining: asyncio.Task[None] | None = None
            try:
                channel = await layer.new_channel()
                self._joined.clear()
                self._regroup.set()
                joining = asyncio.get_running_loop().create_task(self._join(layer, channel))
                while True:
                    self.hint(await layer.receive(channel))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                logger.warning("no hints from the layer", extra={"cause": repr(error)})
            finally:
                if joining is not None:
                    joining.cancel()
            await asyncio.sleep(POLL_SECONDS)

    async def _join(self, layer: Any, channel: str) -> None:
        """Keep this process in the groups of what its sockets look at."""
        while True:
            await self._regroup.wait()
            self._regroup.clear()
            try:
                async with asyncio.timeout(5):
                    for group in self._groups() - self._joined:
                        await layer.group_add(group, channel)
                        self._joined.add(group)
                    for group in self._joined - self._groups():
                        await layer.group_discard(group, channel)
                        self._joined.discard(group)
                self._regrouped.set()
            except Exception as error:
                logger.warning("groups not joined yet", extra={"cause": repr(error)})
                await asyncio.sleep(POLL_SECONDS)
                self._regroup.set()

    def hint(self, event: dict[str, Any]) -> None:
        """Take one hint."""
        match event:
            case {"type": "session.moved", "session": session, "version": version}:
                for socket in list(self._sessions.get(session, ())):
                    socket.wake(version=version)
            case {"type": "chat.moved" | "processes.moved", "chat": chat}:
                self._wake(self._chats.get(chat, ()), rows=True)
            case {"type": "turn.delta", "turn": turn, "run": run, "session": session}:
                stream = self.stream(turn, run, session)
                moved = stream.take(event["offset"], storable(event["text"]))
                if stream.base is None:
                    self._wake(self._sessions.get(session, ()), rows=True)
                elif moved is Move.GREW:
                    self.grew(stream)
                elif moved is Move.GAP:
                    self.repair(stream)
            case {"type": "attempt.moved", "session": session}:
                self._wake(self._sessions.get(session, ()), rows=True)
            case {"type": "turn.reasoning", "session": session}:
                for socket in list(self._sessions.get(session, ())):
                    socket.reasoning(event)

    # --- The clock

    async def _clock(self) -> None:
        """Look once a second; never stop."""
        while True:
            try:
                await self._look()
            except DatabaseError as error:
                logger.warning("poll failed", extra={"cause": str(error)})
            except Exception:
                logger.exception("poll failed")
            for socket in list(self.sockets):
                socket.tick()
            if self.sockets:
                await asyncio.sleep(POLL_SECONDS)
            else:
                self._came.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._came.wait()

    async def _look(self) -> None:
        asked = in_thread(poll, _clock_thread)
        users = sorted({socket.viewer.user_id for socket in self.sockets})
        chats = set(self._chats)
        rows = await asked(sorted(self._sessions), sorted(chats), users)
        for kind, pk, version, turn, run, status, reached, touched, fold in rows:
            if kind == "s":
                mark = None if turn is None else (turn, run, status)
                self._session_seen(pk, version, mark, reached, fold)
            elif kind == "c":
                chats.discard(pk)
                for socket in list(self._chats.get(pk, ())):
                    told = socket.cursor
                    tasks = None if told.tasks is None else told.tasks.mark
                    if (version, turn, fold) != (told.chat_version, told.session, tasks):
                        socket.wake(rows=True)
            else:
                self._person_seen(pk, touched)
        for gone in chats:
            self._wake(self._chats.get(gone, ()), rows=True)
        if time.monotonic() - self._login_at >= LOGIN_SECONDS:
            self._login_at = time.monotonic()
            await self._check_logins()

    def _session_seen(
        self,
        pk: int,
        version: int,
        mark: tuple[int, int, str] | None,
        reached: int | None,
        fold: str,
    ) -> None:
        for socket in list(self._sessions.get(pk, ())):
            told = socket.cursor
            known = None if told.fold is None else told.fold.mark
            if (version, mark, fold) != (told.version, told.busy, known):
                socket.wake(rows=True)
        if mark is not None and reached is not None:
            stream = self._streams.get(mark[:2])
            if stream is not None and reached > stream.end:
                self.repair(stream)

    async def _first_seen(self, user: int) -> None:
        """Note how a person's sidebar stands: whatever moves from here on is told.

        The numbers tell of nobody who has rested for a while, and of nobody while the database
        cannot answer; the next move of such a person is told, whenever it comes.
        """
        stands = NEVER
        with contextlib.suppress(DatabaseError):
            for *_unused, touched, _fold in await in_thread(poll)([], [], [user]):
                stands = touched
        if self._touched.setdefault(user, stands) > stands:  # a look came between
            self._wake_person(user)

    def _person_seen(self, pk: int, touched: datetime) -> None:
        before = self._touched.get(pk)
        self._touched[pk] = touched
        if before is not None and before < touched:
            self._wake_person(pk)

    def _wake_person(self, user: int) -> None:
        for socket in list(self.sockets):
            if socket.viewer.user_id == user:
                socket.wake(sidebar=True)

    async def _check_logins(self) -> None:
        viewers = list({socket.viewer for socket in self.sockets})
        gone = set(await in_thread(signed_out, _clock_thread)(viewers))
        for socket in list(self.sockets):
            if socket.viewer in gone:
                socket.sign_out()


@functools.lru_cache(maxsize=1)
def _hub_of(loop: asyncio.AbstractEventLoop) -> Hub:
    return Hub()


def hub() -> Hub:
    """The hub of this process; begun with its first socket."""
    return _hub_of(asyncio.get_running_loop())
