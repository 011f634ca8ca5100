"""What sockets of every kind share: who may open one, how many there may be, how they end."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.db import DatabaseError
from django.urls import URLPattern, re_path

from .viewers import Viewer, viewer_of

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CONNECT_SECONDS: Final = 4.0  # below the server's own limit for a handshake
BEGIN_SECONDS: Final = 12.0
RETRY_SECONDS: Final = 2.0
CROWDED_SECONDS: Final = 30.0

TOO_BIG: Final = 1009
RESTART: Final = 1012
MALFORMED: Final = 4400
SIGNED_OUT: Final = 4401
FORBIDDEN: Final = 4403
NO_CHAT: Final = 4404
SLOW: Final = 4408
TOO_MANY: Final = 4429

LEAVING: Final = threading.Event()  # this process is being stopped
_threads = ThreadPoolExecutor(settings.ASGI_THREADS, "socket")


def in_thread(
    function: Callable[P, R], executor: ThreadPoolExecutor = _threads
) -> Callable[P, Awaitable[R]]:
    """The function on the bounded pool of the socket side, its connection given back after."""
    made: Callable[P, Awaitable[R]] = database_sync_to_async(
        function, thread_sensitive=False, executor=executor
    )
    return made


class Rate:
    """At most ``limit`` events in any ``seconds``."""

    def __init__(
        self, limit: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self) -> float:
        """Count an event and return 0.0, or return the seconds until one is allowed again.

        >>> now = [0.0]
        >>> rate = Rate(2, 60, clock=lambda: now[0])
        >>> rate.take(), rate.take(), rate.take()
        (0.0, 0.0, 60.0)
        >>> now[0] = 61.0
        >>> rate.take()
        0.0
        """
        now = self._clock()
        while self._times and self._times[0] <= now - self._seconds:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return self._times[0] + self._seconds - now
        self._times.append(now)
        return 0.0


class Places:
    """The sockets that a process may hold, in all and for each person."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._taken: Counter[int] = Counter()

    def take(self, user_id: int) -> bool:
        """Take a place; False if there is none.

        >>> places = Places(total=3, each=2)
        >>> [places.take(user) for user in (1, 1, 1, 2, 3)]
        [True, True, False, True, False]
        >>> places.leave(1)
        >>> places.take(3)
        True
        """
        if self._taken[user_id] >= self._each or self._taken.total() >= self._total:
            return False
        self._taken[user_id] += 1
        return True

    def leave(self, user_id: int) -> None:
        """Give a place back."""
        self._taken[user_id] -= 1
        if self._taken[user_id] <= 0:
            del self._taken[user_id]


@functools.lru_cache(maxsize=1)
def places() -> Places:
    """The places of this process, for sockets of every kind."""
    return Places(settings.HERMES_SOCKETS, settings.HERMES_SOCKETS_A_PERSON)


def encode(frame: Mapping[str, Any], n: int) -> str:
    """The frame as it goes over the wire, with its number."""
    return json.dumps({**frame, "n": n}, ensure_ascii=False, separators=(",", ":"))


class Socket(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One connection of a person who is signed in; what it is about is told by who derives from it.

    Not what channels does: it would subscribe a channel of its own for each socket, and fail
    without the broker; and it would pass through one thread for every message.
    """

    viewer: Viewer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        self.scope, self.base_send = scope, send
        self._n = 0
        self._is_accepted = self._is_closed = self._has_place = False
        self.prepare()
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                if message["type"] == "websocket.connect":
                    await self._connect()
                elif not self._is_closed:
                    await self.take(message.get("text"))
        except asyncio.CancelledError:
            if LEAVING.is_set() and self._is_accepted:
                await self.leave(RESTART, retry_after=RETRY_SECONDS)
            raise
        finally:
            self._is_closed = True
            self.end()
            if self._has_place:
                places().leave(self.viewer.user_id)

    # --- For who derives from it

    def prepare(self) -> None:
        """Set up what a connection needs, before anything is known of it."""

    async def admit(self) -> int | None:
        """None if ``viewer`` may be here, else the code with which the socket is closed."""
        return None

    async def begin(self) -> None:
        """The viewer is let in."""

    async def take(self, content: str | None) -> None:
        """A frame came; None is one of bytes."""

    def end(self) -> None:
        """The connection is over, however it ended; also where it never began."""

    def sent(self, n: int, size: int) -> None:
        """A frame goes out."""

    # --- Coming and going

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                is_let_in = await self._let_in()
            if is_let_in:
                async with asyncio.timeout(BEGIN_SECONDS):
                    await self.begin()
        except (DatabaseError, TimeoutError) as error:
            logger.warning("socket refused", extra={"cause": repr(error)})
            await self._accept()
            await self.leave(RESTART, retry_after=RETRY_SECONDS)

    async def _let_in(self) -> bool:
        """Accept the person whose login this is, where they may be; False if it is not to be."""
        login = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        viewer = await in_thread(viewer_of)(login)
        if viewer is None:
            self._is_closed = True
            await self.close()  # before it was accepted: 403
            return False
        self.viewer = viewer
        refused = await self.admit()
        await self._accept()
        if refused is not None:
            await self.leave(refused)
            return False
        if LEAVING.is_set():
            await self.leave(RESTART, retry_after=RETRY_SECONDS)
            return False
        self._has_place = places().take(viewer.user_id)
        if not self._has_place:
            await self.leave(TOO_MANY, retry_after=CROWDED_SECONDS)
        return self._has_place

    async def _accept(self) -> None:
        if not self._is_accepted:
            self._is_accepted = True
            await self.accept()

    async def tell(self, frame: Mapping[str, Any]) -> None:
        """Send a frame, unless the socket is closed."""
        if self._is_closed:
            return
        self._n += 1
        text = encode(frame, self._n)
        self.sent(self._n, len(text))
        await self.send(text_data=text)

    async def leave(self, code: int, *, retry_after: float | None = None) -> None:
        """Say why, and close."""
        if self._is_closed:
            return
        await self.tell({"type": "bye", "code": code, "retry_after": retry_after})
        self._is_closed = True
        await self.close(code)


class FullOrigins(OriginValidator):  # type: ignore[misc]  # channels has no types
    """Scheme, host and port of ``Origin`` have to be one of ours; what cannot be read is not."""

    def valid_origin(self, parsed_origin: Any) -> bool:
        """Whether the origin is one of ours."""
        try:
            return bool(super().valid_origin(parsed_origin))
        except ValueError:  # a port that is no number
            return False


async def no_such_place(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a socket at an address that is none."""
    await receive()
    await send({"type": "websocket.close"})


def guarded(routes: Sequence[URLPattern]) -> Any:
    """The application that serves these sockets, to pages of our own origins only.

    A socket itself looks up who came: once, in the bounded pool, and again while it is open.
    """
    everywhere = re_path(r"", no_such_place)  # type: ignore[arg-type]
    return FullOrigins(CookieMiddleware(URLRouter([*routes, everywhere])), settings.HERMES_ORIGINS)
