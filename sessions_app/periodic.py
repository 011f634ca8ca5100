"""Periodic work that runs once at a time and not too often, whoever asks for it and how many do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import Q

from hermes.lib.db import DbNow

from .models import Periodic

BUSY: Final = timedelta(seconds=60)  # after which a run that did not end is taken for dead


@contextmanager
def due(name: str, seconds: float, *, force: bool = False) -> Iterator[bool]:
    """Whether this caller runs the work now; others are told no until it is due again.

    ``force`` runs it although it ran a moment ago, but never beside another run.
    """
    is_due = _begin(name, timedelta(seconds=seconds), force=force)
    try:
        yield is_due
    finally:
        if is_due:
            Periodic.objects.filter(pk=name).update(busy_until=None)


def _begin(name: str, every: timedelta, *, force: bool) -> bool:
    free = Periodic.objects.filter(pk=name).filter(Q(busy_until=None) | Q(busy_until__lt=DbNow()))
    if not force:
        free = free.filter(last_run_at__lte=DbNow() - every)
    if free.update(last_run_at=DbNow(), busy_until=DbNow() + BUSY):
        return True
    if Periodic.objects.filter(pk=name).exists():
        return False
    try:
        with transaction.atomic():
            Periodic.objects.create(name=name, last_run_at=DbNow(), busy_until=DbNow() + BUSY)
    except IntegrityError:
        return False
    return True
