"""Signs of life: every process of the product tells now and then that it is there.

The row of a process that leaves in good order goes with it. One that is killed leaves its row
behind, which grows old and is seen; the next process of its kind on that host takes it away.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection

from hermes.lib.db import DbNow
from hermes.lib.leases import Owner

from .models import Heartbeat

logger = logging.getLogger(__name__)

EVERY: Final = 5.0  # seconds
GONE: Final = timedelta(seconds=20)  # not seen for so long: gone
FORGOTTEN: Final = timedelta(hours=24)  # after which nobody waits for it any more

_stopped = threading.Event()
_begun: set[str] = set()  # kinds that a thread of this process tells of


def beat_once(kind: str, queues: Sequence[str] = ()) -> None:
    """Tell that this process lives; one statement."""
    row = Heartbeat(
        owner=str(Owner.me()),
        kind=kind,
        host=Owner.me().host[:100],
        queues=",".join(sorted(queues))[:200],
        version=settings.VERSION[:40],
        began_at=DbNow(),
        seen_at=DbNow(),
    )
    Heartbeat.objects.bulk_create(
        [row],
        update_conflicts=True,
        unique_fields=["owner"],
        update_fields=["seen_at", "queues", "version"],
    )


def begin(kind: str, queues: Sequence[str] = ()) -> None:
    """Tell it from now on, from a thread of this process; asked twice, it is told once."""
    if kind in _begun:
        return
    _begun.add(kind)
    _stopped.clear()
    atexit.register(leave)
    threading.Thread(target=_run, args=(kind, queues), name="heartbeat", daemon=True).start()


def leave() -> None:
    """Take the row of this process away: it leaves in good order."""
    _stopped.set()
    _begun.clear()
    try:
        Heartbeat.objects.filter(pk=str(Owner.me())).delete()
    except DatabaseError as error:
        logger.info("heartbeat left behind", extra={"cause": str(error)})
    finally:
        connection.close()


def _run(kind: str, queues: Sequence[str]) -> None:
    is_first = True
    while not _stopped.is_set():
        try:
            if is_first:
                forget_replaced(kind, queues)
            beat_once(kind, queues)
            is_first = False
        except DatabaseError as error:
            logger.warning("heartbeat failed", extra={"cause": str(error)})
        except Exception:
            logger.exception("heartbeat failed")  # and goes on: a silent process is an alert
        finally:
            connection.close()
        time.sleep(EVERY)


def _is_gone(row: str) -> bool:
    owner = Owner.parse(row)
    return owner is not None and owner.is_gone()


def forget_replaced(kind: str, queues: Sequence[str] = ()) -> int:
    """Take away rows of processes of this kind that are provably gone; how many."""
    rows = Heartbeat.objects.filter(kind=kind)
    if kind == "worker":  # one of another queue is no replacement
        rows = rows.filter(queues=",".join(sorted(queues))[:200])
    gone = [row for row in rows.values_list("pk", flat=True) if _is_gone(row)]
    return Heartbeat.objects.filter(pk__in=gone).delete()[0]


def forget_old() -> int:
    """Take away rows that nobody waits for any more; how many."""
    return Heartbeat.objects.filter(seen_at__lt=DbNow() - FORGOTTEN).delete()[0]


# --- What is seen ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alive:
    """How many processes of a kind, or of a queue, are there, and how many were.

    What a supervisor offers stands where a worker has its queues: the level of its sandbox.
    """

    up: int = 0
    known: int = 0
    seen_at: datetime | None = None  # the latest sign of any of them
    lost_at: datetime | None = None  # the latest sign of the one that is gone for longest
    is_starting: bool = False  # none has told yet, and nobody can expect it


class Census(dict[str, Alive]):
    """Who lives, by kind, and with queues by ``worker:queue`` too."""

    def __init__(self, *, is_fresh: bool) -> None:
        super().__init__()
        self.is_fresh = is_fresh  # the whole has just been started
        self._absent = Alive(is_starting=is_fresh)

    def of(self, key: str) -> Alive:
        """How it is with a kind or a queue, also if nobody has told of it."""
        return self.get(key, self._absent)


def census(now: datetime) -> Census:
    """Who lives; one query.

    A start is fresh while none of those that live began longer ago than a process may be silent.
    Meanwhile nobody waits for what was last seen before it: that was ended, or comes back.
    """
    rows = list(
        Heartbeat.objects.filter(seen_at__gte=now - FORGOTTEN).values_list(
            "pk", "kind", "queues", "began_at", "seen_at"
        )
    )
    up = [(pk, began_at) for pk, _kind, _queues, began_at, seen_at in rows if now - seen_at < GONE]
    begun = min((began_at for _pk, began_at in up if now - began_at < GONE), default=now)
    is_fresh = begun < now and not any(
        now - began_at >= GONE and not _is_gone(pk) for pk, began_at in up
    )
    found = Census(is_fresh=is_fresh)
    for _pk, kind, queues, began_at, seen_at in rows:
        is_up = now - seen_at < GONE
        if is_fresh and not is_up and max(began_at, seen_at) < begun:
            continue
        for key in (kind, *(f"{kind}:{queue}" for queue in queues.split(",") if queue)):
            old = found.get(key, Alive())
            found[key] = Alive(
                old.up + is_up,
                old.known + 1,
                max(filter(None, (old.seen_at, seen_at))),
                old.lost_at if is_up else min(filter(None, (old.lost_at, seen_at))),
            )
    return found
