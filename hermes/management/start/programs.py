"""The processes of Hermes, each with its command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django.conf import settings

TURN_THREADS: Final = 64
BACKGROUND_THREADS: Final = 16
MAX_FRAME_BYTES: Final = 2 * 1024 * 1024


@dataclass(frozen=True)
class Program:
    """One long-lived process."""

    name: str
    command: tuple[str, ...]
    stop_seconds: float  # how long it may take to leave after SIGTERM
    environment: Mapping[str, str] = field(default_factory=dict)


def web() -> Program:
    """Pages and sockets."""
    options = {
        "-b": settings.BIND,
        "-p": settings.PORT,
        "-v": 0,
        "--websocket-max-message-size": MAX_FRAME_BYTES,
        "--websocket-max-frame-size": MAX_FRAME_BYTES,
        "--ping-interval": 20,
        "--ping-timeout": 20,
        "--websocket_timeout": -1,  # a socket stays open as long as the page
        "--websocket_connect_timeout": 5,
        "--application-close-timeout": 5,
        "--http-timeout": 60,
    }
    words = [str(word) for pair in options.items() for word in pair]
    return Program(
        "web",
        (
            *(sys.executable, "-m", "daphne", *words, "--no-server-name"),
            *(["--proxy-headers"] if settings.TRUST_PROXY else []),
            "hermes.asgi:application",
        ),
        stop_seconds=8,
        environment={"ASGI_THREADS": "8"},
    )


def worker(queue: str, threads: int) -> Program:
    """A Celery worker on threads for one queue."""
    return Program(
        queue,
        (
            *(sys.executable, "-m", "celery", "-q", "-A", "hermes", "worker"),
            *("-P", "threads", "-c", str(threads), "-Q", queue, "-n", f"{queue}@%h"),
            *("--loglevel", settings.LOG_LEVEL),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
        stop_seconds=8,
    )


def beat() -> Program:
    """The clock of the sweeps. It keeps its schedule in memory: there is no file to break."""
    return Program(
        "beat",
        (
            *(sys.executable, "-m", "celery", "-q", "-A", "hermes", "beat"),
            *("--scheduler", "celery.beat:Scheduler", "--pidfile="),
            *("--loglevel", "WARNING"),
        ),
        stop_seconds=3,
    )


def supervisor() -> Program:
    """Starts and follows the agent's processes of this host; they outlive it."""
    return Program(
        "supervisor",
        (sys.executable, str(settings.BASE_DIR / "manage.py"), "supervise"),
        stop_seconds=5,
    )


def programs() -> list[Program]:
    """What runs, in the order in which it is stopped: the web first, then the clock."""
    return [
        web(),
        beat(),
        supervisor(),
        worker("turns", TURN_THREADS),
        worker("background", BACKGROUND_THREADS),
    ]
