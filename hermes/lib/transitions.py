"""Compare-and-set on one row: the only way in which a status moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class MovedQuerySet(models.QuerySet[M]):
    """Rows whose ``status`` moves along the model's ``MOVES``."""

    def advance(
        self,
        pk: int,
        to: str,
        *,
        frm: Iterable[str] | None = None,
        when: Mapping[str, Any] = EMPTY,
        **also: Any,
    ) -> bool:
        """Move one row to ``to`` if it is in a legal source state; report whether the write landed.

        ``when`` compares own columns, ``also`` sets own columns in the same statement. False means
        that somebody else moved the row first, or that a compared column has another value.
        """
        moves: Mapping[str, Iterable[str]] = self.model.MOVES  # type: ignore[attr-defined]  # every moved model has it
        legal = {str(source) for source, targets in moves.items() if to in targets}
        sources = legal if frm is None else legal & {str(source) for source in frm}
        for name in (*when, *also):
            if "__" in name or name == "status":
                raise ValueError(f"advance() compares and sets own columns only, not {name!r}")
        # Its own filter on the base manager: through a join or a subquery PostgreSQL does not look
        # again after waiting for another writer, and two callers would both win.
        rows = self.model._base_manager.filter(pk=pk, status__in=sorted(sources), **when)
        return rows.update(status=str(to), **also) == 1
