"""How much one person, and one process, may ask of the socket side."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

FRAME_BYTES: Final = 2 * 1024 * 1024  # Daphne closes with 1009 above it
UNACKED_FRAMES: Final = 256
UNACKED_BYTES: Final = 1024 * 1024
SILENT_SECONDS: Final = 30.0
FRAMES_A_MINUTE: Final = 6_000  # of one socket, acks included; more close it
COMMANDS_WAITING: Final = 100  # of one socket; more close it


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


class Unacked:
    """What a client has been sent and has not said that it took.

    A client that never acks is not judged by it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._acks = False
        self._heard = clock()
        self.is_behind = False

    def sent(self, n: int, size: int) -> None:
        """A frame went out."""
        if not self._acks:
            return
        if not self._sizes:
            self._heard = self._clock()
        self._sizes.append((n, size))
        self._bytes += size
        if len(self._sizes) >= UNACKED_FRAMES or self._bytes >= UNACKED_BYTES:
            self.is_behind = True

    def acked(self, n: int) -> None:
        """The client has taken every frame up to ``n``."""
        self._acks = True
        self._heard = self._clock()
        while self._sizes and self._sizes[0][0] <= n:
            self._bytes -= self._sizes.popleft()[1]
        if len(self._sizes) <= UNACKED_FRAMES // 2 and self._bytes <= UNACKED_BYTES // 2:
            self.is_behind = False

    @property
    def is_silent(self) -> bool:
        """Whether frames are outstanding and nothing was heard for too long."""
        return bool(self._sizes) and self._clock() - self._heard > SILENT_SECONDS
