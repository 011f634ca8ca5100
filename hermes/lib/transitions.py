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
        if not sources:
            raise ValueError(f"no move of {self.model.__name__} leads to {to!r} from there")
        return self._write(pk, sources, when, {**also, "status": str(to)})

    def amend(self, pk: int, status: str, *, when: Mapping[str, Any] = EMPTY, **also: Any) -> bool:
        """Set own columns of one row that stands in ``status``; report whether the write landed."""
        return self._write(pk, {str(status)}, when, also)

    def _write(
        self, pk: int, sources: Iterable[str], when: Mapping[str, Any], values: dict[str, Any]
    ) -> bool:
        for name in (*when, *values):
            if "__" in name:
                raise ValueError(f"only own columns are compared and set, not {name!r}")
        # Its own filter on the base manager: through a join or a subquery PostgreSQL does not look
        # again after waiting for another writer, and two callers would both win.
        rows = self.model._base_manager.filter(pk=pk, status__in=sorted(sources), **when)
        return rows.update(**values) == 1
