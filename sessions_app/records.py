"""What is changed by a form of the admin leaves a line in the history, as an operation does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.db import models, transaction
from django.http import HttpRequest
from django.utils.translation import gettext

from . import intake


class RecordedMixin:
    """Rows that people write by hand: who added, changed or deleted one, and what was there before.

    The values of ``recorded`` columns are kept, of all others that they were changed: keys,
    passwords, and what is somebody's own.
    """

    recorded: ClassVar[tuple[str, ...]] = ()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the rest of the form, and record it in the same transaction."""
        super().save_related(request, form, formsets, change)  # type: ignore[misc] # a ModelAdmin
        names = [name for name in form.changed_data if name in self.recorded]
        others = sorted({*form.changed_data} - {*names})
        before = {name: _plain(form.initial.get(name)) for name in names} if change else {}
        after = {name: _plain(form.cleaned_data.get(name)) for name in names}
        if form.changed_data:
            self.record(
                request, form.instance, "change" if change else "add", before, after, others
            )

    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        """Delete a row and record that."""
        self.delete_queryset(request, type(obj)._default_manager.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        """Delete rows and record each."""
        with transaction.atomic():
            for row in queryset:
                before = {name: _plain(_value(row, name)) for name in self.recorded}
                self.record(request, row, "delete", before, {}, ())
            super().delete_queryset(request, queryset)  # type: ignore[misc] # a ModelAdmin

    def record(
        self,
        request: HttpRequest,
        row: models.Model,
        what: str,
        before: dict[str, Any],
        after: dict[str, Any],
        others: Iterable[str],
    ) -> None:
        """Append one line about a row."""
        intake.record_operation(
            subject=f"{row._meta.model_name}:{row.pk}",
            what=what,
            actor=request.user.get_username(),
            reason=gettext("by its form"),
            data={"before": before, "after": after, "changed": list(others)},
        )


def _value(row: models.Model, name: str) -> Any:
    value = getattr(row, name)
    return value.all() if isinstance(value, models.Manager) else value


def _plain(value: Any) -> Any:
    """A value as JSON has it; of rows, their names in order."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Iterable):
        return sorted(str(each) for each in value)
    return str(value)
