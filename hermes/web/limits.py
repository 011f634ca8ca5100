"""How much one socket may ask, and how far it may lag behind."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

FRAME_BYTES: Final = 2 * 1024 * 1024  # Daphne closes with 1009 above it
UNACKED_FRAMES: Final = 256
UNACKED_BYTES: Final = 1024 * 1024
SILENT_SECONDS: Final = 30.0
FRAMES_A_MINUTE: Final = 6_000  # of one socket, acks included; more close it
COMMANDS_WAITING: Final = 100  # of one socket; more close it


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
