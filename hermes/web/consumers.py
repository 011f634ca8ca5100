"""The socket of a chat: what it is told comes from rows, and a lost hint costs it nothing."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, Final
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.utils.translation import gettext as _

from sessions_app import intake
from sessions_app.domain import Refused
from sessions_app.models import Turn

from . import frames, reading, requests
from .cursor import Cursor, Frame, Stream
from .limits import COMMANDS_WAITING, FRAMES_A_MINUTE, Rate, Unacked
from .poller import Hub, hub, in_thread
from .reading import Viewer

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 4.0  # below the server's own limit for a handshake
COMMAND_SECONDS: Final = 12.0
RETRY_SECONDS: Final = 2.0
STOP_SECONDS: Final = 2.0  # which a worker has to end a turn by itself

RESTART: Final = 1012
SIGNED_OUT: Final = 4401
NO_CHAT: Final = 4404
SLOW: Final = 4408
TOO_MANY: Final = 4429


class ChatSocket(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One browser tab, or one program, at one chat."""

    viewer: Viewer
    chat_id: int
    cursor: Cursor
    hub: Hub

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection.

        Not what channels does: it would subscribe a channel of its own for each socket, and fail
        without the broker; and it would pass through one thread for every message. Hints come
        through the hub of the process.
        """
        self.scope, self.base_send = scope, send
        self.hub = hub()
        self.cursor = Cursor()
        self._n = 0
        self._is_accepted = self._is_open = self._is_closed = self._has_place = False
        self._is_stale = self._sidebar_moved = False
        self._hinted = 0  # a version of the session that is said to be there
        self._woken = asyncio.Event()
        self._stream: Stream | None = None
        self._thoughts: list[Frame] = []
        self._frames = Rate(FRAMES_A_MINUTE)
        self._unacked = Unacked()
        self._commands: asyncio.Queue[frames.Parsed] = asyncio.Queue(COMMANDS_WAITING)
        self._tasks: list[asyncio.Task[None]] = []
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                if message["type"] == "websocket.connect":
                    await self._connect()
                elif not self._is_closed:
                    await self._take(message.get("text"))
        except asyncio.CancelledError:
            if self.hub.is_leaving and self._is_accepted:
                await self._leave(RESTART, retry_after=RETRY_SECONDS)
            raise
        finally:
            self._end()

    # --- Coming and going

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                is_let_in = await self._let_in()
            if is_let_in:
                async with asyncio.timeout(COMMAND_SECONDS):
                    await self._begin()
        except (DatabaseError, TimeoutError) as error:
            logger.warning("socket refused", extra={"cause": repr(error)})
            await self._accept()
            await self._leave(RESTART, retry_after=RETRY_SECONDS)

    async def _let_in(self) -> bool:
        """Accept the person whose login this is at a chat of theirs; False if it is not to be."""
        login = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        viewer = await in_thread(reading.viewer_of)(login)
        if viewer is None:
            self._is_closed = True
            await self.close()  # before it was accepted: 403
            return False
        uid = _uuid(self.scope["url_route"]["kwargs"]["uid"])
        found = None if uid is None else await in_thread(requests.find_chat)(viewer, uid)
        await self._accept()
        self.viewer = viewer
        if uid is None or found is None:
            await self._leave(NO_CHAT)
            return False
        if self.hub.is_leaving:
            await self._leave(RESTART, retry_after=RETRY_SECONDS)
            return False
        self._has_place = self.hub.places.take(viewer.user_id)
        if not self._has_place:
            await self._leave(TOO_MANY, retry_after=30.0)
            return False
        self.uid, (self.chat_id, session) = uid, found
        query = parse_qs(self.scope["query_string"].decode("latin1"))
        html = query.get("html") != ["0"]
        self.cursor = Cursor(html=html, session=session)
        return True

    async def _begin(self) -> None:
        """Hear of what moves, say what is, and go on from there."""
        self._is_open = True
        await self.hub.add(self)  # before anything is read: what moves from now on wakes us
        await self._sync("hello")
        for work in (self._follow, self._work):
            self._tasks.append(asyncio.get_running_loop().create_task(self._guarded(work)))

    async def _accept(self) -> None:
        if not self._is_accepted:
            self._is_accepted = True
            await self.accept()

    async def _guarded(self, work: Any) -> None:
        """Run one of the two loops; after a fault the client connects anew."""
        try:
            await work()
        except Exception:
            logger.exception("socket failed", extra={"chat": self.chat_id})
            await self._leave(RESTART, retry_after=RETRY_SECONDS)

    async def _leave(self, code: int, *, retry_after: float | None = None) -> None:
        """Say why, and close."""
        if self._is_closed:
            return
        await self._tell({"type": "bye", "code": code, "retry_after": retry_after})
        self._is_closed = True
        await self.close(code)

    def _end(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._is_open:
            self.hub.discard(self)
        if self._has_place:
            self.hub.places.leave(self.viewer.user_id)

    # --- What the hub calls

    def wake(self, *, rows: bool = False, sidebar: bool = False, version: int = 0) -> None:
        """Send what is new; with ``rows``, or while it is behind ``version``, read first."""
        self._is_stale = self._is_stale or rows
        self._hinted = max(self._hinted, version)
        self._sidebar_moved = self._sidebar_moved or sidebar
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
            self.hub.spawn(self._leave(SLOW))
        elif self._is_stale:
            self._woken.set()

    def sign_out(self) -> None:
        """The login has ended."""
        self.hub.spawn(self._leave(SIGNED_OUT))

    # --- Telling

    async def _tell(self, frame: Frame) -> None:
        if self._is_closed:
            return
        self._n += 1
        text = frames.encode(frame, self._n)
        self._unacked.sent(self._n, len(text))
        await self.send(text_data=text)

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
                await self._tell(frame)
            if self._stream is not None and self.cursor.is_behind(self._stream):
                self._is_stale = True
                self._woken.set()
            if self._sidebar_moved:
                self._sidebar_moved = False
                await self._tell({"type": "sidebar"})

    async def _sync(self, reason: str | None) -> None:
        """Read what has changed and tell it."""
        seen = await in_thread(reading.look)(
            self.viewer, self.uid, self.cursor, stream=self._stream, reason=reason
        )
        if seen is None:
            return await self._leave(NO_CHAT)
        stream = self._stream
        live = seen.live
        if live is not None and seen.session is not None:
            stream = self.hub.stream(live.turn, live.run, seen.session)
            stream.open(live.base, live.stored)
        for frame in self.cursor.advance(seen, stream):
            await self._tell(frame)
        self._stream = stream if self.cursor.turn is not None else None
        self.hub.file(self, self.cursor.session)
        if self._stream is not None:
            self.hub.grew(self._stream)

    # --- Being told

    async def _take(self, content: str | None) -> None:
        """Take a frame: what costs nothing is answered here, the rest in order."""
        if not self._is_open:
            return
        if self._frames.take():
            return await self._leave(TOO_MANY, retry_after=30.0)
        parsed = frames.parse(content, chat=str(self.uid), session=self.cursor.session)
        match parsed:
            case frames.Ack(_ref, n):
                was_behind = self._unacked.is_behind
                self._unacked.acked(n)
                if was_behind and not self._unacked.is_behind:
                    self.wake(rows=True)
            case frames.Ping(_ref, nonce):
                await self._tell({"type": "pong", "nonce": nonce})
            case frames.Bad(ref, code, message):
                await self._tell(dict(frames.error(ref, code, message)))
            case _ if self._commands.full():
                await self._leave(TOO_MANY, retry_after=5.0)
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
                    await self._tell(dict(told))
                    continue
            await self._carry_out(command)

    async def _carry_out(self, command: frames.Parsed) -> None:
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                done = await in_thread(requests.carry_out)(self.viewer, self.chat_id, command)
        except requests.SignedOut:
            return await self._leave(SIGNED_OUT)
        except Refused as refused:
            return await self._tell(dict(frames.error(command.ref, refused.code, refused.message)))
        except (DatabaseError, TimeoutError) as error:
            logger.warning("command not carried out", extra={"cause": repr(error)})
            text = _("The database does not answer; try again in a moment.")
            told = frames.error(command.ref, "unavailable", text, retry=RETRY_SECONDS)
            return await self._tell(dict(told))
        except Exception:
            logger.exception("command failed", extra={"chat": self.chat_id})
            text = _("Something went wrong here; it has been noted.")
            return await self._tell(dict(frames.error(command.ref, "internal", text)))
        for frame in done.frames:
            await self._tell(frame)
        if done.stopping is not None:
            self.hub.spawn(_carry_out_stop(done.stopping))
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


async def no_such_place(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a socket at an address that is none."""
    await receive()
    await send({"type": "websocket.close"})
