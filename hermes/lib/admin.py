"""Admin pages whose rules live in code: read-only, and as fast at a million rows as at ten."""

from __future__ import annotations

from typing import Any, Final

from django.core.paginator import Paginator
from django.db import connection, models
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin

COUNTED: Final = 10_000  # rows of a filtered list that are counted exactly


class EstimatePaginator(Paginator):  # type: ignore[type-arg]  # Django's is generic in stubs only
    """Counts a whole table by the database's estimate, a filtered one up to a limit."""

    @cached_property
    def count(self) -> int:
        """About how many rows there are; exact for small and for narrowly filtered lists."""
        rows: Any = self.object_list
        query = getattr(rows, "query", None)
        if query is None:
            return len(rows)
        limited = rows.order_by()[: COUNTED + 1].count()
        if limited <= COUNTED or query.where:
            return int(limited)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass",
                [rows.model._meta.db_table],
            )
            estimate = cursor.fetchone()[0]
        return max(int(limited), int(estimate))


class ReadOnlyAdmin(ModelAdmin):
    """Rows that people look at and code writes.

    Nothing can be added, changed or deleted here: every such write has a function that locks,
    checks and leaves history, and an action is how an operator calls it.
    """

    paginator = EstimatePaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 50
    actions: Any = []

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Nobody changes rows by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Nobody deletes rows by hand."""
        return False
