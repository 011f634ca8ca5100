"""Lists of the admin that are as fast at a million rows as at ten.

What a list offers, an index answers: pages up to a limit, orders that an index has, values that are
found by one, and searches for whole values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import connection, models
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.functional import cached_property
from django.utils.translation import gettext
from unfold.views import ChangeList

COUNTED: Final = 10_000  # rows of a list that are counted exactly, and that have pages
VALUES: Final = 100  # of a column, that are offered as filters
EMPTY: Final = "''"  # in SQL
FOUND: Final = 100  # rows of another table through which a search goes
# What filters and the links of the desk ask of a column that has a filter; nothing else.
ASKED: Final = frozenset({"", "exact", "in", "isnull", "isempty", "gte", "lt", "id__exact"})


class EstimatePaginator(Paginator):  # type: ignore[type-arg]  # Django's is generic in stubs only
    """Counts a whole table by the database's estimate, a filtered one up to a limit.

    Pages end at that limit too: the database reads every row before the first of a page.
    """

    template_name = "admin/pages.html"
    most = COUNTED

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

    @cached_property
    def num_pages(self) -> int:
        """Pages that can be opened."""
        return min(super().num_pages, max(1, COUNTED // self.per_page))

    @property
    def is_cut(self) -> bool:
        """Whether there are rows that no page shows."""
        return self.count > COUNTED


class OfferedChangeList(ChangeList):  # type: ignore[misc]  # unfold has no types
    """A list in no other order than those that its head offers."""

    def get_filters(self, request: HttpRequest) -> Any:
        """The filters; what none of them asks is refused before the database is asked."""
        for name, values in self.get_filters_params().items():
            if not self.model_admin.lookup_allowed(name, values[-1], request):
                raise IncorrectLookupParameters(name)
            if any("\0" in value for value in values):
                raise IncorrectLookupParameters(name)
        return super().get_filters(request)

    def get_ordering_field(self, field_name: Any) -> Any:
        """What a column is ordered by; None where the list has no such order."""
        if self.sortable_by is not None and field_name not in self.sortable_by:
            return None
        return super().get_ordering_field(field_name)


class ValuesFilter(admin.AllValuesFieldListFilter):
    """The values that a column of text has, the empty one left out.

    They are found one after the other by an index that begins with the column.
    """

    def __init__(
        self,
        field: Any,
        request: HttpRequest,
        params: dict[str, Any],
        model: type[models.Model],
        model_admin: Any,
        field_path: str,
    ) -> None:
        super().__init__(field, request, params, model, model_admin, field_path)
        self.lookup_choices: Any = values_of(model, field.column)


def values_of(model: type[models.Model], column: str) -> list[str]:
    """The first values of a column of text, in order."""
    name = connection.ops.quote_name(column)
    table = connection.ops.quote_name(model._meta.db_table)

    def after(value: str) -> str:
        return (
            f"SELECT {name} FROM {table} "  # noqa: S608 - names of a model
            f"WHERE {name} <> '' AND {name} > {value} ORDER BY {name} LIMIT 1"
        )

    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE found(value) AS (({after(EMPTY)}) UNION ALL "  # noqa: S608 - as above
            f"SELECT ({after('found.value')}) FROM found WHERE value IS NOT NULL) "
            "SELECT value FROM found WHERE value IS NOT NULL LIMIT %s",
            [VALUES],
        )
        return [row[0] for row in cursor.fetchall()]


class AskedMixin:
    """A list that answers what its filters and actions ask, and nothing else.

    Django lets every column be asked about by name, also one that is never shown: who may see a
    list could guess a text letter by letter.
    """

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """A list in the orders that it offers."""
        return OfferedChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Whether a filter of this list asks that."""
        for told in self.list_filter:  # type: ignore[attr-defined] # a ModelAdmin
            name = told[0] if isinstance(told, tuple) else told
            if not isinstance(name, str):  # a filter of its own
                name = name.parameter_name
                if lookup == name:
                    return True
                continue
            column, _, how = lookup.partition("__")
            if column == name and how in ASKED:
                return True
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """The row of this key; None also for one that no row can have."""
        if "\0" in object_id:
            return None
        return super().get_object(request, object_id, from_field)  # type: ignore[misc] # a ModelAdmin

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list; of what it cannot be asked it says so, and of rows that cannot be there."""
        if request.method == "POST" and not self._are_keys(
            request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
        ):
            messages.error(request, gettext("Nothing was changed: there are no such rows."))
            return HttpResponseRedirect(request.get_full_path())
        response = super().changelist_view(request, extra_context)  # type: ignore[misc] # a ModelAdmin
        if response.status_code == 302 and response.url == f"{request.path}?e=1":
            text = gettext("This list has no such page, filter or value: all of it is shown.")
            messages.warning(request, text)
        return response

    def _are_keys(self, told: Sequence[str]) -> bool:
        key = self.model._meta.pk  # type: ignore[attr-defined] # a ModelAdmin
        try:
            for each in told:
                key.to_python(each)
        except ValidationError:
            return False
        return not any("\0" in each for each in told)


class ListMixin(AskedMixin):
    """A list whose pages, orders and searches an index answers.

    ``search_fields`` are looked up in turn, each by an index of its own, until one finds something;
    a field of another table is looked up there first. ``found_order`` has, by the relation through
    which rows were found, the order that an index beginning with that relation has.
    """

    paginator = EstimatePaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 50
    sortable_by: Sequence[str] | None = ("id",)
    found_order: ClassVar[Mapping[str, Sequence[str]]] = {}

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """The rows of which a searched field is the term; never doubled."""
        term = search_term.strip()
        if not term:
            return queryset, False
        for lookup in self.search_fields:  # type: ignore[attr-defined] # a ModelAdmin
            name, _, rest = lookup.partition("__")
            field = queryset.model._meta.get_field(name)
            if field.is_relation:
                others = field.related_model._default_manager.filter(**{rest: term})
                if keys := list(others.values_list("pk", flat=True)[:FOUND]):
                    found = queryset.filter(**{f"{name}__in": keys})
                    order = self.found_order.get(name)
                    return (found.order_by(*order) if order else found), False
                continue
            try:
                found = queryset.filter(**{lookup: field.to_python(term)})
            except (ValueError, ValidationError):
                continue  # it cannot be in this column
            if found.order_by().exists():
                return found, False
        return queryset.none(), False
