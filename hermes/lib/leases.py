"""Leases in rows: claim under a fencing token, renewal and watchdog by one thread a process.

A lease says who works on a row. Its token rises with every claim; every write of the worker
compares it, so that a worker which was taken for dead cannot write any more. The clock is the
database's. The renewer also watches: a row that was stopped, ended or taken over, or a deadline
that has passed, wakes the worker through the callbacks of its :class:`Watch`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from django.db import DatabaseError, connection, models

from .db import DbNow
from .transitions import MovedQuerySet

logger = logging.getLogger(__name__)

TICK: Final = 0.5  # seconds between two looks of the watchdog

L = TypeVar("L", bound="Leased")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def process_start(pid: int) -> str | None:
    """The kernel's start time of a process, or None if it is gone or cannot be told.

    A zombie counts as gone: it does no work.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]


@dataclass(frozen=True)
class Owner:
    """Who holds a lease: a process, named so that a recycled pid is not taken for it."""

    host: str
    boot: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"{self.host}|{self.boot}|{self.pid}|{self.start}"

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _boot_id(), pid, process_start(pid) or "0")

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that a row names, or None if the text is not one."""
        host, *rest = text.split("|")
        if len(rest) != 3 or not rest[1].isdigit():
            return None
        return cls(host, rest[0], int(rest[1]), rest[2])

    def is_gone(self) -> bool:
        """Whether this owner is provably gone; False where it cannot be told from here."""
        if self.host != socket.gethostname() or not Path("/proc/self/stat").exists():
            return False
        return self.boot != _boot_id() or process_start(self.pid) != self.start


@dataclass(frozen=True)
class Lease:
    """The right to write one row's outcome, while the row carries this token."""

    pk: int
    token: int


class LeasedQuerySet(MovedQuerySet[L]):
    """Rows that one worker at a time works on."""

    def claim(self, pk: int, to: str, *, ttl: timedelta, owner: Owner, **also: Any) -> Lease | None:
        """Take a queued row under a new fencing token, or return None if it is not to be had.

        Called with the session locked. A running row is never taken over: the sweep ends it when
        its lease has run out.
        """
        token = models.F("fence_token") + 1
        landed = self.advance(
            pk,
            to,
            frm=["queued"],
            fence_token=token,
            lease_owner=str(owner),
            lease_expires_at=DbNow() + ttl,
            **also,
        )
        if not landed:
            return None
        return Lease(pk, self.model._base_manager.values_list("fence_token", flat=True).get(pk=pk))

    def renew(self, lease: Lease, *, ttl: timedelta) -> bool:
        """Extend a lease that is still held; report whether it was."""
        rows = self.model._base_manager.filter(
            pk=lease.pk, fence_token=lease.token, status="running"
        )
        return rows.update(lease_expires_at=DbNow() + ttl) == 1

    def expired(self) -> models.QuerySet[L]:
        """Running rows whose lease has run out by the database's clock."""
        return self.filter(status="running", lease_expires_at__lt=DbNow())


class Leased(models.Model):
    """Columns of a row that is worked on under a lease."""

    LEASE: ClassVar[LeaseTimes]

    fence_token = models.PositiveBigIntegerField(default=0)
    lease_owner = models.CharField(max_length=200, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    stop_asked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


@dataclass(frozen=True)
class LeaseTimes:
    """How long a lease lasts, and how often it is renewed."""

    ttl: timedelta
    renew_every: timedelta


class Wake(StrEnum):
    """Why a worker was woken."""

    STOP = "stop"  # somebody asked this work to stop
    LOST = "lost"  # the row was ended or taken over: nothing more can be written
    OVERDUE = "overdue"  # the work passed its ceiling
    SHUTDOWN = "shutdown"  # this process is leaving: save and hand back


@dataclass(eq=False)
class Watch:
    """One lease under renewal; ``woken`` says why the worker should leave, or is None."""

    model: type[Leased]
    lease: Lease
    times: LeaseTimes
    deadline: float | None = None  # time.monotonic() at which the work is overdue
    woken: Wake | None = None
    renewed_at: float = field(default_factory=time.monotonic)
    _event: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _callbacks: list[Callable[[], None]] = field(default_factory=list)

    def wake(self, why: Wake) -> None:
        """Wake the worker once; the first reason stays."""
        with self._lock:
            if self.woken is not None:
                return
            self.woken = why
            callbacks = list(self._callbacks)
        self._event.set()
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def on_wake(self, callback: Callable[[], None]) -> Iterator[None]:
        """While inside, call ``callback`` when the worker is woken, or now if it already was."""
        with self._lock:
            late = self.woken is not None
            self._callbacks.append(callback)
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def sleep(self, seconds: float) -> bool:
        """Wait, at most until woken; report whether the time was slept through."""
        return not self._event.wait(seconds)


class Renewer:
    """The one thread of a process that renews its leases and watches over them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._leaving = False

    @contextlib.contextmanager
    def watched(
        self, model: type[Leased], lease: Lease, *, deadline: float | None = None
    ) -> Iterator[Watch]:
        """Keep ``lease`` renewed while inside; yield its watch."""
        watch = Watch(model, lease, model.LEASE, deadline)
        with self._lock:
            self._watches.add(watch)
            if self._thread is None or self._pid != os.getpid() or not self._thread.is_alive():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="lease-renewer", daemon=True)
                self._thread.start()
            leaving = self._leaving
        if leaving:
            watch.wake(Wake.SHUTDOWN)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def leave(self) -> None:
        """Wake every worker of this process: it is shutting down."""
        with self._lock:
            self._leaving = True
            watches = list(self._watches)
        for watch in watches:
            watch.wake(Wake.SHUTDOWN)

    def stay(self) -> None:
        """Take :meth:`leave` back, for a process that goes on after all."""
        with self._lock:
            self._leaving = False

    def is_leaving(self) -> bool:
        """Whether this process is shutting down."""
        with self._lock:
            return self._leaving

    def is_busy(self) -> bool:
        """Whether this process holds a lease."""
        with self._lock:
            return bool(self._watches)

    def _run(self) -> None:
        while True:
            time.sleep(TICK)
            with self._lock:
                watches = [watch for watch in self._watches if watch.woken is None]
                if not self._watches:
                    self._thread = None
                    return
            try:
                self.look(watches)
            except DatabaseError as error:
                # Work goes on: a lease that nobody took still commits, and the next look is soon.
                logger.warning("lease look failed", extra={"cause": str(error)})
            except Exception:
                logger.exception("lease renewer failed")
            finally:
                connection.close()

    def look(self, watches: list[Watch]) -> None:
        """Look at every row once: wake whom it concerns, renew what is due."""
        now = time.monotonic()
        by_model: Mapping[type[Leased], list[Watch]] = defaultdict(list)
        for watch in watches:
            if watch.deadline is not None and now >= watch.deadline:
                watch.wake(Wake.OVERDUE)
            by_model[watch.model].append(watch)
        for model, group in by_model.items():
            rows = {
                row[0]: row[1:] for row in self._columns(model, [watch.lease.pk for watch in group])
            }
            for watch in group:
                token, status, stop_asked_at = rows.get(watch.lease.pk, (None, None, None))
                if token != watch.lease.token or status != "running":
                    watch.wake(Wake.LOST)
                elif stop_asked_at is not None:
                    watch.wake(Wake.STOP)
                elif now - watch.renewed_at >= watch.times.renew_every.total_seconds():
                    objects: Any = model._default_manager
                    if objects.renew(watch.lease, ttl=watch.times.ttl):
                        watch.renewed_at = now
                    else:
                        watch.wake(Wake.LOST)

    def _columns(self, model: type[Leased], pks: list[int]) -> Iterator[tuple[Any, ...]]:
        # The status column is the subclass's: the abstract model does not know its states.
        columns: tuple[str, ...] = ("pk", "fence_token", "status", "stop_asked_at")
        return iter(model._base_manager.filter(pk__in=pks).values_list(*columns))


renewer: Final = Renewer()
watched = renewer.watched
