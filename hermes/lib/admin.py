"""Admin pages whose rules live in code: read-only, and as fast at a million rows as at ten."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.core.exceptions import ValidationError
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextareaWidget

from . import reauth
from .lists import ListMixin

OPERATED: Final = 1_000  # rows of one operation
SECONDS: Final = 1.0  # of one step of an operation, and of foreseeing it
FORESEEN: Final = 100  # rows that are foreseen together
NAMED: Final = 20  # rows that are named before one
REASON_LEAST, REASON_MOST = 10, 200  # characters of a reason


class ReadOnlyAdmin(ListMixin, ModelAdmin):
    """Rows that people look at and code writes.

    Nothing can be added, changed or deleted here: every such write has a function that locks,
    checks and leaves history, and an action is how an operator calls it.
    """

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


class FreshMixin:
    """Rows that hold keys or rights: written only by who has shown their password a moment ago."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """The form, or first the question for the password."""
        may = (
            self.has_add_permission(request)  # type: ignore[attr-defined] # a ModelAdmin
            if object_id is None
            else self.has_change_permission(request)  # type: ignore[attr-defined] # a ModelAdmin
        )
        if may and not reauth.is_fresh(request):
            return reauth.ask(request)
        return super().changeform_view(request, object_id, form_url, extra_context)  # type: ignore[misc] # a ModelAdmin

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """What would go, or first the question for the password."""
        if self.has_delete_permission(request) and not reauth.is_fresh(request):  # type: ignore[attr-defined] # a ModelAdmin
            return reauth.ask(request)
        return super().delete_view(request, object_id, extra_context)  # type: ignore[misc] # a ModelAdmin

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list; its rows are deleted as one is."""
        deletes = request.POST.get("action") == "delete_selected"
        if deletes and self.has_delete_permission(request) and not reauth.is_fresh(request):  # type: ignore[attr-defined] # a ModelAdmin
            return reauth.ask(request)
        return super().changelist_view(request, extra_context)  # type: ignore[misc] # a ModelAdmin


# --- Operations ---------------------------------------------------------------------------------


class ReasonForm(forms.Form):
    """Why an operator does what they are about to do."""

    reason = forms.CharField(
        label=_("Reason"),
        min_length=REASON_LEAST,
        max_length=REASON_MOST,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("At least ten characters. It is kept in the history with your name."),
    )


@dataclass(frozen=True)
class Operation:
    """Something that an operator may do to rows, for a reason and with a permission of its own.

    ``act`` takes a row, the operator's name and the reason. It does what is to be done and records
    it in one transaction, and returns why nothing was changed, or an empty text if something was.

    ``foresee`` takes all the chosen rows and says of each, in a few words, what would come of it;
    nothing is written. It is counted and shown before a reason is asked for.
    """

    name: str
    label: str | Promise
    effect: str | Promise  # what it changes, in one sentence
    permission: str  # app_label.codename
    act: Callable[[Any, str, str], str | Promise]
    is_danger: bool = False
    foresee: Callable[[Sequence[Any]], Sequence[str]] | None = None
    asks_password: bool = False  # if it was not shown within the last quarter of an hour


class OperationsMixin:
    """Operations on chosen rows of a list, and on the row of a page; see :class:`Operation`.

    What is chosen is counted and named first, and nothing happens before a reason was given. What
    takes longer than a second goes on in steps, each a request of its own.
    """

    operations: ClassVar[Sequence[Operation]] = ()
    change_form_outer_after_template = "admin/operations.html"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The operations that this operator may carry out."""
        found: dict[str, Any] = super().get_actions(request)  # type: ignore[misc] # a ModelAdmin
        for operation in self.operations:
            if request.user.has_perm(operation.permission):
                found[operation.name] = (_starting(operation), operation.name, operation.label)
        return found

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show a row with what may be done to it; what this operator may not do is shown too."""
        options = self.opts  # type: ignore[attr-defined] # a ModelAdmin
        context = {
            **(extra_context or {}),
            "operations": [
                (operation, request.user.has_perm(operation.permission))
                for operation in self.operations
            ],
            "operations_url": reverse(f"admin:{options.app_label}_{options.model_name}_changelist"),
            "operations_pk": object_id,
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
        }
        return super().change_view(request, object_id, form_url, context)  # type: ignore[misc]

    def operate(
        self, request: HttpRequest, rows: models.QuerySet[Any], operation: Operation
    ) -> HttpResponse:
        """Ask for a reason; with one, carry the operation out and say what came of it."""
        options = self.opts  # type: ignore[attr-defined] # a ModelAdmin
        form = ReasonForm(request.POST if "reason" in request.POST else None)
        back = request.get_full_path()
        progress = Progress.of(request.POST)
        if operation.asks_password and not reauth.is_fresh(request):
            self._tell(request, operation, progress)  # what was done before the password was old
            return reauth.ask(request)
        if (last := _key(rows, request.POST.get("last"))) is not None:
            rows = rows.filter(pk__lte=last)  # what came since it was counted is not meant
        count = rows.order_by().count()
        row = rows.first() if request.POST.get("from_row") and count == 1 else None
        if row is not None:
            back = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[row.pk])
        if count > OPERATED:
            text = gettext("Nothing was changed: %(count)d rows are more than %(most)d at once.")
            messages.error(request, text % {"count": count, "most": OPERATED})
            return HttpResponseRedirect(back)
        if not count and not progress.seen:
            text = gettext("Nothing was changed: none of the rows is in this list any more.")
            messages.warning(request, text)
            return HttpResponseRedirect(back)
        if form.is_bound and form.is_valid():
            self._carry_out(request, rows, operation, form.cleaned_data["reason"], progress)
            if not progress.left:
                self._tell(request, operation, progress)
                return HttpResponseRedirect(back)
        if last is None:
            last = rows.order_by().aggregate(n=models.Max("pk"))["n"]
        context = {
            **self.admin_site.each_context(request),  # type: ignore[attr-defined]
            "title": operation.label,
            "operation": operation,
            "form": form,
            "count": count,
            "foreseen": () if progress.left else _foreseen(operation, rows),
            "named": [] if progress.left else [str(row) for row in rows[:NAMED]],
            "progress": progress,
            "last": last,
            "more": max(0, count - NAMED),
            "opts": options,
            "chosen": request.POST.getlist(helpers.ACTION_CHECKBOX_NAME),
            "across": request.POST.get("select_across", "0"),
            "from_row": request.POST.get("from_row", ""),
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
            "back": back,
            "actor": request.user.get_username(),
        }
        return TemplateResponse(request, "admin/operation.html", context)

    def _carry_out(
        self,
        request: HttpRequest,
        rows: models.QuerySet[Any],
        operation: Operation,
        reason: str,
        progress: Progress,
    ) -> None:
        """Go on behind where the last step has ended, for about a second."""
        actor, began = request.user.get_username(), time.monotonic()
        if (after := _key(rows, progress.after)) is not None:
            rows = rows.filter(pk__gt=after)
        found = list(rows.order_by("pk")[: OPERATED + 1])
        for number, row in enumerate(found, start=1):
            progress.after = str(row.pk)
            progress.left = len(found) - number
            if why := str(operation.act(row, actor, reason)):
                progress.unchanged[why] += 1
            else:
                progress.done += 1
                told = f"{operation.name}: {reason}"
                self.log_change(request, row, told)  # type: ignore[attr-defined] # a ModelAdmin
            if time.monotonic() - began > SECONDS:
                break

    def _tell(self, request: HttpRequest, operation: Operation, progress: Progress) -> None:
        if done := progress.done:
            text = ngettext("%(what)s: %(count)d row.", "%(what)s: %(count)d rows.", done)
            messages.success(request, text % {"what": operation.label, "count": done})
        for why, count in progress.unchanged.items():
            text = ngettext(
                "Nothing was changed in %(count)d row: %(why)s",
                "Nothing was changed in %(count)d rows: %(why)s",
                count,
            )
            messages.warning(request, text % {"count": count, "why": why})


@dataclass
class Progress:
    """How far an operation on many rows has come; the page carries it from step to step."""

    done: int = 0
    unchanged: Counter[str] = field(default_factory=Counter)  # by why
    after: str = ""  # the key of the last row that was looked at
    left: int = 0

    @classmethod
    def of(cls, told: Any) -> Progress:
        """What the form of the last step says."""
        found = cls(done=_number(told.get("done")), after=told.get("after", ""))
        for each in told.getlist("unchanged"):
            count, _colon, why = each.partition(":")
            found.unchanged[why] += _number(count)
        return found

    @property
    def seen(self) -> int:
        """Rows that were looked at so far."""
        return self.done + self.unchanged.total()

    @property
    def lines(self) -> list[str]:
        """What was not changed, as the form carries it."""
        return [f"{count}:{why}" for why, count in self.unchanged.items()]


def _key(rows: models.QuerySet[Any], text: str | None) -> Any:
    """The key that a form names; None if it names none."""
    try:
        return rows.model._meta.pk.to_python(text) if text and "\0" not in text else None
    except ValidationError:
        return None


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _foreseen(operation: Operation, rows: models.QuerySet[Any]) -> list[tuple[str, int]]:
    """What would come of an operation, the most frequent first; looked at for about a second."""
    if operation.foresee is None:
        return []
    began, found = time.monotonic(), Counter[str]()
    chosen = list(rows)
    for n in range(0, len(chosen), FORESEEN):
        if time.monotonic() - began > SECONDS:
            found[gettext("not tried out")] += len(chosen) - n
            break
        found.update(str(what) for what in operation.foresee(chosen[n : n + FORESEEN]))
    return found.most_common()


def _starting(operation: Operation) -> Callable[..., HttpResponse]:
    """The function that Django calls for an action of a list."""

    def start(admin: Any, request: HttpRequest, rows: models.QuerySet[Any]) -> HttpResponse:
        response: HttpResponse = admin.operate(request, rows, operation)
        return response

    return start
