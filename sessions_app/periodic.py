"""Periodic work that runs once at a time and not too often, whoever asks for it and how many do."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Q

from hermes.lib.db import DbNow
from hermes.lib.leases import Owner

from .models import Periodic

logger = logging.getLogger(__name__)

_lock: Final = threading.Lock()
_at_work: Final[Counter[tuple[int, str]]] = Counter()  # by process, since one may fork

BUSY: Final = timedelta(seconds=60)  # after which a run that did not end is taken for dead


@contextmanager
def due(name: str, seconds: float, *, force: bool = False) -> Iterator[bool]:
    """Whether this caller runs the work now; others are told no until it is due again.

    ``force`` runs it although it ran a moment ago, but never beside another run. A run whose
    process is provably gone counts as over, and one of this process that it does not run any more.
    """
    # Read before this thread counts as at work: who holds the claim was at work before it.
    held = Periodic.objects.filter(pk=name).values_list("busy_by", flat=True).first()
    with _alone(name) as is_alone:
        every = None if force else timedelta(seconds=seconds)
        run = f"{Owner.me()} {secrets.token_hex(4)}"
        is_due = _begin(name, run, every, held=held, is_alone=is_alone)
        try:
            yield is_due
        finally:
            if is_due:
                _end(name, run)


@contextmanager
def _alone(name: str) -> Iterator[bool]:
    """Whether no other thread of this process was at this work when this one came."""
    mine = (os.getpid(), name)
    with _lock:
        is_alone = not _at_work[mine]
        _at_work[mine] += 1
    try:
        yield is_alone
    finally:
        with _lock:
            _at_work[mine] -= 1


def _end(name: str, run: str) -> None:
    """Say that the work is over. Where the database does not take it, our next run knows it."""
    try:
        Periodic.objects.filter(pk=name, busy_by=run).update(busy_until=None, busy_by="")
    except DatabaseError as error:
        logger.warning("end of a sweep not noted", extra={"sweep": name, "cause": str(error)})
        connection.close()


def run_due(
    name: str, seconds: float, steps: Sequence[Callable[[], int]], *, force: bool = False
) -> int | None:
    """Run the steps of a sweep, if it is due; the sum of what they return, None if it was not.

    A step that the database refuses is told in the log, and the next ones run all the same.
    """
    with due(name, seconds, force=force) as is_due:
        if not is_due:
            return None
        found = 0
        for step in steps:
            try:
                found += step()
            except DatabaseError as error:
                logger.warning(
                    "sweep step failed", extra={"step": step.__name__, "cause": str(error)}
                )
                connection.close()  # a broken one would fail the next steps too
        return found


def _begin(
    name: str, run: str, every: timedelta | None, *, held: str | None, is_alone: bool
) -> bool:
    running = {"last_run_at": DbNow(), "busy_until": DbNow() + BUSY, "busy_by": run}
    if held is None:
        try:
            with transaction.atomic():
                Periodic.objects.create(name=name, **running)
        except IntegrityError:  # another was a moment earlier
            return False
        return True
    free = Q(busy_until=None) | Q(busy_until__lt=DbNow())
    owner = Owner.parse(held.partition(" ")[0])
    if owner is not None and (owner.is_gone() or (is_alone and owner == Owner.me())):
        free |= Q(busy_by=held)  # that very run: its name is given once
    row = Periodic.objects.filter(pk=name)
    if every is not None:
        row = row.filter(last_run_at__lte=DbNow() - every)
    return row.filter(free).update(**running) == 1
