"""The supervisor of a host: starts children, says who they are, how they ended, and ends them.

All that it knows is in rows and in the folders of the processes, so that it can be killed and
started again at any moment. A child's shim goes on without it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Q

from hermes.lib.leases import Owner, process_start

from . import domain, files, intake, sandbox
from .domain import ProcessReason, ProcessStatus
from .files import Child, Folder
from .models import ProcessRecord

logger = logging.getLogger(__name__)

LOOK: Final = 0.25  # seconds between two looks at the rows
GLANCE: Final = 0.05  # … at the folders of processes that run
TAILS: Final = 1.0  # … at their output
PATIENCE: Final = 5.0  # for a shim that was started to say who it is
KILL_PATIENCE: Final = 8.0  # for a shim to end its child; then it is done without it
KEPT: Final = 4000  # characters of output that go with an end
REASONS: Final = {
    "killed": ProcessReason.KILLED,
    "timed_out": ProcessReason.TIMED_OUT,
    "too_many": ProcessReason.TOO_MANY,
}

MARK: Final = "AGENT_PROCESS"  # in the environment of a child: what it leaves is known by it
ROUNDS: Final = 20  # looks for what a process without a keeper has left

_shims: Final[list[subprocess.Popen[bytes]]] = []  # of this process, until they are reaped


class Supervisor:
    """One run of the supervisor."""

    def __init__(self) -> None:
        me = Owner.me()
        self.host, self.boot = me.host, me.boot
        self._started: dict[int, float] = {}  # when its shim was started, by this run
        self._asked: dict[int, float] = {}  # when its shim was asked to end it
        self._sizes: dict[int, int] = {}
        self._tails_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Supervise until ``stop``; children go on."""
        files.root().mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clean()
        watched: list[Folder] = []
        looked_at = 0.0
        while not stop.is_set():
            is_news = any((folder.path / "exit.json").exists() for folder in watched)
            if is_news or time.monotonic() - looked_at >= LOOK:
                looked_at = time.monotonic()
                try:
                    watched = self.look()
                except (DatabaseError, InterfaceError) as error:
                    logger.warning("processes not looked at", extra={"cause": str(error)})
                    stop.wait(1)
                except Exception:
                    logger.exception("supervisor failed")
                    stop.wait(1)
                finally:
                    connection.close()
            stop.wait(GLANCE)

    def look(self) -> list[Folder]:
        """Look at every process of this host once; return the folders of those that run."""
        _shims[:] = [shim for shim in _shims if shim.poll() is None]
        rows = ProcessRecord.objects.active().filter(Q(host=self.host) | Q(host=""))
        is_time = time.monotonic() - self._tails_at >= TAILS
        found = list(rows.order_by("pk"))
        for row in found:
            try:
                if row.host == "":
                    self._take(row)
                else:
                    self._follow(row, wants_tail=is_time)
            except (OperationalError, InterfaceError):  # there is no sense in asking for the next
                raise
            except OSError as error:
                logger.warning("process not followed", extra={"uid": row.uid, "cause": str(error)})
            except Exception:  # whatever is wrong with one holds up no other
                logger.exception("process not followed", extra={"uid": row.uid})
        if is_time:
            self._tails_at = time.monotonic()
            # Before it runs nobody reads there, and what is typed would be lost.
            self._type(
                [row for row in found if row.wants_pty and row.status == ProcessStatus.RUNNING]
            )
        return [Folder.of(row.uid) for row in found if not row.imported]

    # --- start -----------------------------------------------------------------------------------

    def _take(self, row: ProcessRecord) -> None:
        level = sandbox.active()
        if refusal := sandbox.refusal():
            end = intake.End(ProcessStatus.FAILED_START, ProcessReason.NOT_STARTED, detail=refusal)
            intake.record_end(row.pk, end)
            return
        if level is not None and intake.claim(
            row.pk, host=self.host, boot_id=self.boot, sandbox=level
        ):
            row.sandbox = level
            self._launch(row)

    def _launch(self, row: ProcessRecord) -> None:
        """Start its shim; what the machine has no room for is told and not tried for ever."""
        try:
            self._start_shim(row)
        except OSError as error:
            logger.warning("process not started", extra={"uid": row.uid, "cause": str(error)})
            self._not_started(row, f"the machine refused: {error.strerror or 'no reason given'}")

    def _start_shim(self, row: ProcessRecord) -> None:
        folder = Folder.of(row.uid)
        workspace = files.workspace_of(row.origin_chat)
        cwd = sandbox.within(workspace, row.cwd)
        if cwd is None or not (workspace / cwd).is_dir():
            self._not_started(row, "the directory is not in the workspace")
            return
        confined = sandbox.confinement(
            sandbox.Level(row.sandbox),
            row.command,
            workspace=str(workspace),
            cwd=cwd,
            wants_pty=row.wants_pty,
        )
        folder.make(
            {
                "argv": confined.argv,
                "cwd": confined.cwd,
                "env": {**confined.env, MARK: row.uid},
                "level": row.sandbox,
                "readable": confined.readable,
                "writable": confined.writable,
                "limits": sandbox.limits(row.limit_seconds),
                "tasks": settings.HERMES_PROCESS_TASKS,
                "seconds": row.limit_seconds,
                "keep_bytes": settings.HERMES_PROCESS_OUTPUT_BYTES,
                "pty": row.wants_pty,
            }
        )
        if row.wants_pty and not (folder.path / "input").exists():
            os.mkfifo(folder.path / "input", 0o600)
        script = Path(__file__).with_name("shim.py")
        shim = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-S", "-E", str(script), str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": sandbox.SEARCH, "LANG": "C.UTF-8"},  # none of our secrets
            start_new_session=True,
        )
        _shims.append(shim)
        self._started[row.pk] = time.monotonic()

    def _not_started(self, row: ProcessRecord, detail: str) -> None:
        end = intake.End(ProcessStatus.FAILED_START, ProcessReason.NOT_STARTED, detail=detail)
        intake.record_end(row.pk, end)

    # --- follow ----------------------------------------------------------------------------------

    def _follow(self, row: ProcessRecord, *, wants_tail: bool) -> None:
        folder = Folder.of(row.uid)
        if row.imported or not (folder.was_begun() or row.status == ProcessStatus.STARTING):
            self._follow_foreign(row)
            return
        if row.boot_id != self.boot:
            if (left := folder.exit()) is not None:
                self._finish(row, folder, left)
            else:
                self._lose(row, folder, ProcessReason.REBOOTED)
            return
        shim = folder.shim()
        # Asked in this order: a shim that leaves in between has written its file before.
        is_kept = shim is not None and shim.is_alive()
        ended = folder.exit()
        if ended is not None:
            self._finish(row, folder, ended)
            return
        if not is_kept:
            self._follow_unkept(row, folder)
            return
        child = folder.child()
        if row.status == ProcessStatus.STARTING and child is not None and child.start:
            intake.record_start(
                row.pk, pid=child.pid, pid_start=child.start, started_at=child.started_at
            )
        if row.kill_asked_at is not None and shim is not None:
            self._kill(row, folder, shim)
        if wants_tail:
            self._note_tail(row, folder)

    def _follow_unkept(self, row: ProcessRecord, folder: Folder) -> None:
        """No shim runs for it: it is not begun yet, or will not be, or has lost its shim."""
        since = time.monotonic() - self._started.get(row.pk, -PATIENCE)
        if not folder.was_begun():
            if row.kill_asked_at is not None:
                intake.record_end(
                    row.pk, intake.End(ProcessStatus.FAILED_START, ProcessReason.HANDED_BACK)
                )
            elif since >= PATIENCE:  # an earlier run claimed it and was killed
                self._launch(row)
            return
        child = folder.child()
        if child is not None:
            self._lose(row, folder, ProcessReason.VANISHED)
        elif since >= PATIENCE:
            self._not_started(row, "its shim ended before the child began")

    def _follow_foreign(self, row: ProcessRecord) -> None:
        """A process that was not started here: all that can be seen is whether it runs."""
        known = Child(row.pid or 0, row.pid_start, datetime.now(UTC))
        if row.boot_id != self.boot:
            self._lose(row, Folder.of(row.uid), ProcessReason.REBOOTED)
        elif not known.is_alive():
            self._lose(row, Folder.of(row.uid), ProcessReason.VANISHED)
        elif row.kill_asked_at is not None:
            self._end_foreign(row, known)

    def _end_foreign(self, row: ProcessRecord, known: Child) -> None:
        since = self._asked.setdefault(row.pk, time.monotonic())
        number = signal.SIGTERM if time.monotonic() - since < 2 else signal.SIGKILL
        if not _send(known, number) and not known.is_alive():
            intake.record_end(row.pk, intake.End(ProcessStatus.ENDED, ProcessReason.KILLED))
        elif time.monotonic() - since > KILL_PATIENCE:
            intake.note_kill_failed(row.pk)

    def _kill(self, row: ProcessRecord, folder: Folder, shim: Child) -> None:
        """Ask the shim; end it and its child without it where it does not answer."""
        if row.pk not in self._asked:
            self._asked[row.pk] = time.monotonic()
            _send(shim, signal.SIGTERM)
        elif time.monotonic() - self._asked[row.pk] > KILL_PATIENCE:
            if (child := folder.child()) is not None:
                _send(child, signal.SIGKILL, is_group=True)
            _send(shim, signal.SIGKILL)
        if folder.has_survivors():
            intake.note_kill_failed(row.pk)

    def _note_tail(self, row: ProcessRecord, folder: Folder) -> None:
        size = folder.size()
        if size == self._sizes.get(row.pk, row.output_bytes):
            return
        self._sizes[row.pk] = size
        intake.note_tail(row.pk, tail=domain.tail(folder.recent(), KEPT), output_bytes=size)

    def _type(self, rows: list[ProcessRecord]) -> None:
        if not rows:
            return
        for each in intake.unsent_input(row.pk for row in rows):
            folder = Folder.of(next(row.uid for row in rows if row.pk == each.process_id))
            if intake.mark_sent(each.pk):
                folder.send(each.text)

    # --- ends ------------------------------------------------------------------------------------

    def _finish(self, row: ProcessRecord, folder: Folder, ended: dict[str, Any]) -> None:
        """Record an end as the shim found it."""
        ended_at = datetime.fromtimestamp(float(ended["ended_at"]), UTC)
        if "error" in ended:
            end = intake.End(
                ProcessStatus.FAILED_START,
                ProcessReason.NOT_STARTED,
                ended_at=ended_at,
                detail=str(ended["error"]),
            )
        else:
            output = folder.output()
            reason = REASONS.get(ended["why"], ProcessReason.EXITED)
            if reason is ProcessReason.KILLED and row.kill_asked_at is None:
                reason = ProcessReason.EXITED  # the signal came from outside
            end = intake.End(
                ProcessStatus.ENDED,
                reason,
                exit_code=ended["code"],
                signal_number=ended["signal"],
                ended_at=ended_at,
                started_at=datetime.fromtimestamp(float(ended["started_at"]), UTC),
                output_bytes=int(ended["bytes"]),
                body=domain.tail(output.text, KEPT),
            )
        intake.record_end(row.pk, end)
        self._forget(row)

    def _lose(self, row: ProcessRecord, folder: Folder, reason: ProcessReason) -> None:
        """Nobody can say how it ended; whatever of it still runs has no keeper and is ended."""
        child = folder.child()
        if child is not None and row.boot_id == self.boot:
            _send(child, signal.SIGKILL, is_group=True)
            _end_left(row.uid)
        output = folder.output()
        was_asked = row.kill_asked_at is not None and reason is ProcessReason.VANISHED
        end = intake.End(
            ProcessStatus.ENDED if was_asked else ProcessStatus.LOST,
            ProcessReason.KILLED if was_asked else reason,
            started_at=None if child is None else child.started_at,
            output_bytes=output.size,
            body=domain.tail(output.text, KEPT),
        )
        if intake.record_end(row.pk, end) and not was_asked:
            logger.error("process lost", extra={"uid": row.uid, "reason": str(reason)})
        self._forget(row)

    def _forget(self, row: ProcessRecord) -> None:
        self._started.pop(row.pk, None)
        self._asked.pop(row.pk, None)
        self._sizes.pop(row.pk, None)

    def _clean(self) -> None:
        """Delete the folders of processes that have no row any more."""
        found = {path.name: path for path in files.root().iterdir() if path.is_dir()}
        try:
            known = set(
                ProcessRecord.objects.filter(uid__in=list(found)).values_list("uid", flat=True)
            )
        except (DatabaseError, InterfaceError) as error:
            logger.warning("folders not cleaned", extra={"cause": str(error)})
            return
        for name in set(found) - known:
            Folder(found[name]).remove()


def _end_left(uid: str) -> None:
    """End whatever a process has left whose shim is gone; what it still starts is found too."""
    for _ in range(ROUNDS):
        found = [child for child in _left_by(uid) if _send(child, signal.SIGKILL)]
        if not found:
            return
        time.sleep(0.01)
    logger.error("process could not be ended", extra={"uid": uid})


def _left_by(uid: str) -> Iterator[Child]:
    mark = f"{MARK}={uid}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        start = process_start(int(path.name))
        try:
            words = (path / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or somebody else's
            continue
        if start is not None and mark in words:
            yield Child(int(path.name), start, datetime.now(UTC))


def _send(whom: Child, number: signal.Signals, *, is_group: bool = False) -> bool:
    """Signal this very process, never another that has its pid by now; False if it is gone."""
    try:
        handle = os.pidfd_open(whom.pid)
    except (OSError, AttributeError):
        handle = -1
    try:
        if not whom.is_alive():  # asked while the pid is held: it cannot change any more
            return False
        if is_group and os.getpgid(whom.pid) == whom.pid:
            os.killpg(whom.pid, number)
        elif handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(whom.pid, number)
    except OSError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True
