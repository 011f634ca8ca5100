"""Hints: ids sent on commit, that may be lost. The row is the truth; a sweep or a poll repairs.

``enqueue_on_commit`` publishes a Celery task, ``push_on_commit`` and ``push`` send to a group of
the channel layer. None of them ever raises or delays the caller for long: after a failed publish
the broker is left alone for a while, so that a dead broker does not hold a thread per command.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

REST: Final = 5.0  # seconds for which a broker that failed is left alone
BACKLOG: Final = 10_000  # pushes waiting in this process; above it new ones are dropped


class Task(Protocol):
    """What of a Celery task is used here."""

    name: str

    def apply_async(self, args: tuple[Any, ...]) -> Any:
        """Publish the task."""


class _Rest:
    """Remembers that something failed a moment ago."""

    def __init__(self) -> None:
        self._until = 0.0

    def is_on(self) -> bool:
        return time.monotonic() < self._until

    def begin(self) -> None:
        self._until = time.monotonic() + REST

    def end(self) -> None:
        self._until = 0.0


_broker = _Rest()


def enqueue(task: Task, *args: Any) -> bool:
    """Publish a task now; report whether the broker took it."""
    if _broker.is_on():
        return False
    try:
        task.apply_async(args)
    except Exception as error:
        _broker.begin()
        logger.warning("hint not published", extra={"task": task.name, "cause": repr(error)})
        return False
    _broker.end()
    return True


def enqueue_on_commit(task: Task, *args: Any) -> None:
    """Publish a task once the transaction has committed, or not at all."""
    # A lambda, not a partial: Django names a failed robust hook by its __qualname__.
    transaction.on_commit(lambda: enqueue(task, *args), robust=True)


def enqueue_when(condition: bool, task: Task, *args: Any) -> bool:
    """Publish a task if ``condition`` holds; report whether the broker took it."""
    return condition and enqueue(task, *args)


class _PushLoop:
    """One event-loop thread a process, which sends to the channel layer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] | None = None

    def put(self, group: str, event: dict[str, Any]) -> None:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                ready = threading.Event()
                threading.Thread(
                    target=lambda: asyncio.run(self._run(ready)), name="push-loop", daemon=True
                ).start()
                ready.wait(5)
        loop, queue = self._loop, self._queue
        if loop is not None and queue is not None and queue.qsize() < BACKLOG:
            loop.call_soon_threadsafe(queue.put_nowait, (group, event))

    async def _run(self, ready: threading.Event) -> None:
        self._queue = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        ready.set()
        rest = _Rest()
        while True:
            group, event = await self._queue.get()
            if rest.is_on():
                continue
            layer = get_channel_layer()
            if layer is None:
                continue
            try:
                async with asyncio.timeout(2):
                    await layer.group_send(group, event)
            except Exception as error:
                rest.begin()
                logger.warning("push not sent", extra={"group": group, "cause": repr(error)})


_push_loop = _PushLoop()


def push(group: str, event: Mapping[str, Any]) -> None:
    """Send an event to a group of the channel layer, at most once, without waiting."""
    _push_loop.put(group, dict(event))


def push_on_commit(group: str, event: Mapping[str, Any]) -> None:
    """Send an event once the transaction has committed, or not at all."""
    transaction.on_commit(lambda: push(group, event), robust=True)


def session_group(session_id: int) -> str:
    """The group of everybody who looks at a session."""
    return f"session.{session_id}"


def chat_group(chat_id: int) -> str:
    """The group of everybody who looks at a chat."""
    return f"chat.{chat_id}"


def user_group(user_id: int) -> str:
    """The group of all sockets of a person."""
    return f"user.{user_id}"
