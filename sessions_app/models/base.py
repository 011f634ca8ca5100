"""What the models of this application have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

from django.db import models

from hermes.lib.db import locked
from sessions_app import domain

OPEN_TURN: Final = sorted(domain.OPEN_TURN)
BUSY_TURN: Final = sorted(domain.BUSY_TURN)


def choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    """An enum as Django wants it."""
    return [(member.value, member.value.replace("_", " ")) for member in enum]


M = TypeVar("M", bound=models.Model)


class LockingQuerySet(models.QuerySet[M]):
    """Rows that are locked one statement at a time (architecture: lock order)."""

    def lock(self, pk: int) -> M:
        """The row, locked until the transaction ends and read after the lock was had."""
        return locked(self.select_for_update(no_key=True), pk)
