"""What the start command is asked by signals, noticed without a race."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType


class StopSignals:
    """Counts SIGINT, SIGTERM and SIGHUP: one asks to stop, a second one to hurry."""

    def __init__(self) -> None:
        self._count = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        os.set_blocking(self._reader, False)

    def __enter__(self) -> StopSignals:
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if number is signal.SIGHUP and before is signal.SIG_IGN:
                continue  # nohup: it is meant to outlive its terminal
            self._before[number] = before
            signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._reader)
        os.close(self._writer)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._count += 1

    def asked(self) -> bool:
        """True after the first signal."""
        return self._count > 0

    def urgent(self) -> bool:
        """True after the second."""
        return self._count > 1

    def wait(self, seconds: float) -> None:
        """Wait at most ``seconds``; a signal ends it at once, also one that came just before."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready:
            os.read(self._reader, 512)
