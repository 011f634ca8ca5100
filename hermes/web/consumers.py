"""The socket of a chat: what it is told comes from rows, and a lost hint costs it nothing."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, Final
from urllib.parse import parse_qs

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.utils.translation import gettext as _

from hermes.lib.sockets import (
    CROWDED_SECONDS,
    NO_CHAT,
    RESTART,
    RETRY_SECONDS,
    SIGNED_OUT,
    SLOW,
    TOO_MANY,
    Rate,
    Socket,
    in_thread,
)
from sessions_app import intake
from sessions_app.domain import Refused
from sessions_app.models import Turn

from . import frames, reading, requests
from .cursor import Cursor, Frame, Stream
from .limits import COMMANDS_WAITING, FRAMES_A_MINUTE, Unacked
from .poller import Hub, hub

logger = logging.getLogger(__name__)

COMMAND_SECONDS: Final = 12.0
STOP_SECONDS: Final = 2.0  # which a worker has to end a turn by itself
BEGIN_SECONDS: Final = 0.05  # which a worker has to begin a turn before its queue is shown


class ChatSocket(Socket):
    """One browser tab, or one program, at one chat."""

    chat_id: int
    cursor: Cursor
    hub: Hub

    def prepare(self) -> None:
        """Hints come through the hub of the process."""
        self.hub = hub()
        self.cursor = Cursor()
        self._is_open = False
        self._is_stale = self._sidebar_moved = False
        self._hinted = 0  # a version of the session that is said to be there
        # The session in which this socket has just queued a turn, and the version it was queued at.
        self._queued: tuple[int | None, int] = (None, 0)
        self._is_submitting = False
        self._woken = asyncio.Event()
        self._stream: Stream | None = None
        self._thoughts: list[Frame] = []
        self._frames = Rate(FRAMES_A_MINUTE)
        self._unacked = Unacked()
        self._commands: asyncio.Queue[frames.Parsed] = asyncio.Queue(COMMANDS_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    # --- Coming and going

    async def admit(self) -> int | None:
        """A chat of somebody else is as absent as one that is not."""
        uid = _uuid(self.scope["url_route"]["kwargs"]["uid"])
        found = None if uid is None else await in_thread(requests.find_chat)(self.viewer, uid)
        if uid is None or found is None:
            return NO_CHAT
        self.uid, (self.chat_id, session) = uid, found
        query = parse_qs(self.scope["query_string"].decode("latin1"))
        html = query.get("html") != ["0"]
        self.cursor = Cursor(html=html, session=session)
        return None

    async def begin(self) -> None:
        """Hear of what moves, say what is, and go on from there."""
        self._is_open = True
        await self.hub.add(self)  # before anything is read: what moves from now on wakes us
        await self._sync("hello")
        for work in (self._follow, self._work):
            self._tasks.append(asyncio.get_running_loop().create_task(self._guarded(work)))

    async def _guarded(self, work: Any) -> None:
        """Run one of the two loops; after a fault the client connects anew."""
        try:
            await work()
        except Exception:
            logger.exception("socket failed", extra={"chat": self.chat_id})
            await self.leave(RESTART, retry_after=RETRY_SECONDS)

    def end(self) -> None:
        """Hear of nothing any more."""
        for task in self._tasks:
            task.cancel()
        if self._is_open:
            self.hub.discard(self)

    # --- What the hub calls

    def wake(self, *, rows: bool = False, sidebar: bool = False, version: int = 0) -> None:
        """Send what is new; with ``rows``, or while it is behind ``version``, read first."""
        session, queued = self._queued
        if 0 < version <= queued and session == self.cursor.session:
            return  # of our own turn, which is shown as it begins
        self._is_stale = self._is_stale or rows
        self._hinted = max(self._hinted, version)
        self._sidebar_moved = self._sidebar_moved or sidebar
        if not (self._is_submitting and version):  # it may be of our own turn: told in a moment
            self._woken.set()

    def reasoning(self, event: Frame) -> None:
        """Pass thinking aloud on; it is not kept for a socket that lags."""
        if self.cursor.follows(event["turn"], event["run"]) and len(self._thoughts) < 100:
            names = ("turn", "run", "offset", "text")
            self._thoughts.append({"type": "turn.reasoning", **{n: event[n] for n in names}})
            self._woken.set()

    def tick(self) -> None:
        """A second has passed: a client that acks and then is silent is let go."""
        if self._unacked.is_silent:
            self.hub.spawn(self.leave(SLOW))
        elif self._is_stale:
            self._woken.set()

    def sign_out(self) -> None:
        """The login has ended."""
        self.hub.spawn(self.leave(SIGNED_OUT))

    # --- Telling

    def sent(self, n: int, size: int) -> None:
        """Count what the client has not taken yet."""
        self._unacked.sent(n, size)

    async def _follow(self) -> None:
        """Send what is new whenever somebody says that there is something, in order."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._unacked.is_behind:
                continue  # an ack wakes us; what is then the case is read then
            # A look that was under way may have seen by now what a hint was about.
            hinted, self._hinted = self._hinted, 0
            if self._is_stale or hinted > self.cursor.version:
                self._is_stale = False
                try:
                    await self._sync(None)
                except DatabaseError as error:
                    self._is_stale = True  # the next tick tries again
                    logger.warning("socket not told yet", extra={"cause": str(error)})
            thoughts, self._thoughts = self._thoughts, []
            for frame in [*thoughts, *self.cursor.follow(self._stream)]:
                await self.tell(frame)
            if self._stream is not None and self.cursor.is_behind(self._stream):
                self._is_stale = True
                self._woken.set()
            if self._sidebar_moved:
                self._sidebar_moved = False
                await self.tell({"type": "sidebar"})

    async def _sync(self, reason: str | None) -> None:
        """Read what has changed and tell it."""
        seen = await in_thread(reading.look)(
            self.viewer, self.uid, self.cursor, stream=self._stream, reason=reason
        )
        if seen is None:
            return await self.leave(NO_CHAT)
        stream = self._stream
        live = seen.live
        if live is not None and seen.session is not None:
            stream = self.hub.stream(live.turn, live.run, seen.session)
            stream.open(live.base, live.stored)
        for frame in self.cursor.advance(seen, stream):
            await self.tell(frame)
        self._stream = stream if self.cursor.turn is not None else None
        self.hub.file(self, self.cursor.session)
        if self._stream is not None:
            self.hub.grew(self._stream)

    # --- Being told

    async def take(self, content: str | None) -> None:
        """Take a frame: what costs nothing is answered here, the rest in order."""
        if not self._is_open:
            return
        if self._frames.take():
            return await self.leave(TOO_MANY, retry_after=CROWDED_SECONDS)
        parsed = frames.parse(content, chat=str(self.uid), session=self.cursor.session)
        match parsed:
            case frames.Ack(_ref, n):
                was_behind = self._unacked.is_behind
                self._unacked.acked(n)
                if was_behind and not self._unacked.is_behind:
                    self.wake(rows=True)
            case frames.Ping(_ref, nonce):
                await self.tell({"type": "pong", "nonce": nonce})
            case frames.Bad(ref, code, message):
                await self.tell(dict(frames.error(ref, code, message)))
            case _ if self._commands.full():
                await self.leave(TOO_MANY, retry_after=5.0)
            case _:
                self._commands.put_nowait(parsed)

    async def _work(self) -> None:
        """Carry out what the client asks, in order."""
        while True:
            command = await self._commands.get()
            if not isinstance(command, frames.Read):
                wait = self.hub.rate(self.viewer.user_id).take()
                if wait:
                    text = _("Too many messages in a minute; wait a moment.")
                    told = frames.error(command.ref, "rate", text, retry=round(wait, 1))
                    await self.tell(dict(told))
                    continue
            await self._carry_out(command)

    async def _carry_out(self, command: frames.Parsed) -> None:
        self._is_submitting = isinstance(command, frames.Submit)
        try:
            await self._do(command)
        finally:
            self._is_submitting = False
            if self._hinted:
                self._woken.set()

    async def _do(self, command: frames.Parsed) -> None:
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                done = await in_thread(requests.carry_out)(self.viewer, self.chat_id, command)
        except requests.SignedOut:
            return await self.leave(SIGNED_OUT)
        except Refused as refused:
            return await self.tell(dict(frames.error(command.ref, refused.code, refused.message)))
        except (DatabaseError, TimeoutError) as error:
            logger.warning("command not carried out", extra={"cause": repr(error)})
            text = _("The database does not answer; try again in a moment.")
            told = frames.error(command.ref, "unavailable", text, retry=RETRY_SECONDS)
            return await self.tell(dict(told))
        except Exception:
            logger.exception("command failed", extra={"chat": self.chat_id})
            text = _("Something went wrong here; it has been noted.")
            return await self.tell(dict(frames.error(command.ref, "internal", text)))
        for frame in done.frames:
            await self.tell(frame)
        if done.stopping is not None:
            self.hub.spawn(_carry_out_stop(done.stopping))
        if done.queued is not None:
            # A look now would cost the worker and us the time in which the turn begins; that
            # moves the session once more, and both are told together.
            self._queued = done.queued
            if self._hinted <= done.queued[1]:
                self._hinted = 0
            asyncio.get_running_loop().call_later(BEGIN_SECONDS, self._show_queued)
        else:
            self.wake(rows=True)

    def _show_queued(self) -> None:
        """Tell of a turn that has not begun at once: another one runs, or no worker is there."""
        (session, queued), self._queued = self._queued, (None, 0)
        if session != self.cursor.session or self.cursor.version < queued:
            self.wake(rows=True)


async def _carry_out_stop(turn: Turn) -> None:
    """End a turn that was asked to stop, where its worker does not; the sweep does it too."""
    await asyncio.sleep(STOP_SECONDS)
    try:
        await in_thread(intake.end_stopped)(turn)
    except (DatabaseError, ObjectDoesNotExist) as error:
        logger.warning("stop left to the sweep", extra={"cause": str(error)})


def _uuid(text: str) -> str | None:
    """A chat's address as it is stored, or None."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None
