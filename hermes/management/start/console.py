"""The terminal of the start command: lines of many processes, each with its name in front."""

from __future__ import annotations

import threading
from collections import deque
from typing import IO, Final

WIDTH: Final = 10
LONGEST_LINE: Final = 64 * 1024  # bytes; longer lines are broken


class Console:
    """Writes whole lines from any thread; a terminal that has gone away stops nothing."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._guard = threading.Lock()

    def say(self, name: str, line: str) -> None:
        """Write one line of ``name``."""
        self.write(f"{name:<{WIDTH}} | {line}\n")

    def write(self, text: str) -> None:
        """Write ``text`` as it is."""
        with self._guard:
            try:
                self._out.write(text)
                self._out.flush()
            except (OSError, ValueError):  # closed, or its reader has gone
                pass

    def follow(self, name: str, pipe: IO[bytes]) -> Tail:
        """Copy what comes out of ``pipe``, line by line, until it is closed."""
        return Tail(self, name, pipe)


class Tail:
    """Copies the output of one process; remembers its last lines."""

    def __init__(self, console: Console, name: str, pipe: IO[bytes]) -> None:
        self.last: deque[str] = deque(maxlen=5)
        self._console, self._name, self._pipe = console, name, pipe
        self._thread = threading.Thread(target=self._copy, name=f"log-{name}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._pipe:
            while line := self._pipe.readline(LONGEST_LINE):
                text = line.decode(errors="replace").rstrip()
                if text:
                    self.last.append(text)
                    self._console.say(self._name, text)

    def finish(self, seconds: float = 1) -> None:
        """Wait at most ``seconds`` for the rest."""
        self._thread.join(seconds)
