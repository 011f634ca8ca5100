"""Keeping and pushing the text of a stream beside the thread that reads it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from django.db import DatabaseError, connection

from hermes.lib.hints import push, session_group
from hermes.lib.leases import Lease

from . import transcript

logger = logging.getLogger(__name__)

SAVE_EVERY: Final = 0.5  # seconds between two chunks in rows
PUSH_FIRST: Final = 0.05  # seconds between two pushes at the start …
PUSH_LAST: Final = 0.2  # … and of a long stream, where fewer do


class Flusher:
    """Saves what was streamed every half second, and pushes deltas in between.

    The first text is saved before it is pushed, so that whoever is shown it can read it again.
    ``number`` is that of the first chunk; numbers rise through all model calls of a run.
    ``text`` is all that was added. Leaving joins the thread: nothing is written after that.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        session_id: int,
        offset: int,
        on_lost: Callable[[], None],
        number: int = 0,
    ) -> None:
        self._lease = lease
        self._session = session_id
        self._first = number
        self._offset = offset  # of the first code point of ``_pieces``
        self._on_lost = on_lost
        self._pieces: list[str] = []
        self._reasoning: list[str] = []
        self._wake = threading.Condition()
        self._closed = False
        self._taken = 0
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def add(self, text: str) -> None:
        """Take text of the answer, in order."""
        with self._wake:
            self._pieces.append(text)
            self._wake.notify()

    def add_reasoning(self, text: str) -> None:
        """Take reasoning, which is pushed but kept only with the message."""
        with self._wake:
            self._reasoning.append(text)
            self._wake.notify()

    @property
    def text(self) -> str:
        """Everything that was added."""
        with self._wake:
            return "".join(self._pieces)

    def _take(self, reasoned: int) -> tuple[str, str, int, bool]:
        """New text, new reasoning and its pieces so far, and whether the stream has been left.

        Waits, at most until the next save is due, for one of them.
        """
        with self._wake:
            self._wake.wait_for(
                lambda: self._pieces_ready() or len(self._reasoning) > reasoned or self._closed,
                timeout=SAVE_EVERY,
            )
            text = "".join(self._pieces[self._taken :])
            self._taken = len(self._pieces)
            reasoning = "".join(self._reasoning[reasoned:])
            return text, reasoning, len(self._reasoning), self._closed

    def _pieces_ready(self) -> bool:
        return len(self._pieces) > self._taken

    def _run(self) -> None:
        began = time.monotonic()
        saved_at, number, reasoned, reasoning_at = 0.0, self._first, 0, 0
        unsaved, offset = "", self._offset  # offset of ``unsaved``
        end = self._offset
        while True:
            text, reasoning, reasoned, closed = self._take(reasoned)
            unsaved += text
            now = time.monotonic()
            if unsaved and not closed and now - saved_at >= SAVE_EVERY:
                # After the last delta nothing is saved here: the turn's end writes its message.
                if (landed := self._save(number, offset, unsaved)) is True:
                    number, offset, unsaved, saved_at = number + 1, offset + len(unsaved), "", now
                elif landed is False:
                    self._on_lost()
                    return
                else:
                    number += 1  # it may stand there after all, then the next one overlaps it
            if text:
                self._push("turn.delta", end, text)
                end += len(text)
            if reasoning:
                self._push("turn.reasoning", reasoning_at, reasoning)
                reasoning_at += len(reasoning)
            if closed:
                return
            pause = PUSH_FIRST + (PUSH_LAST - PUSH_FIRST) * min(1.0, (now - began) / 60)
            with self._wake:
                self._wake.wait_for(lambda: self._closed, timeout=pause)

    def _save(self, number: int, offset: int, text: str) -> bool | None:
        """Whether the chunk landed; None if the database could not be asked."""
        try:
            return transcript.save_chunk(self._lease, number, offset, text)
        except DatabaseError as error:
            logger.warning("chunk not saved", extra={"turn": self._lease.pk, "cause": str(error)})
            return None
        finally:
            connection.close()

    def _push(self, kind: str, offset: int, text: str) -> None:
        push(
            session_group(self._session),
            {
                "type": kind,
                "session": self._session,
                "turn": self._lease.pk,
                "run": self._lease.token,
                "offset": offset,
                "text": text,
            },
        )
