"""What operators see of processes, their news and approvals, and what they may do about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from hermes.lib.admin import Operation, OperationsMixin
from hermes.lib.db import DbNow
from sessions_app.admin import TranscriptAdmin, timeline

from . import domain, files, intake, verdicts
from .domain import ApprovalStatus, EventStatus
from .models import Approval, CompletionEvent, ProcessRecord

READ: Final = "processes_app.read_log"
HIDDEN: Final = _("hidden: reading commands and their output needs a permission of its own")
FIRST: Final = ("told", "command", "hidden_text", "news", "timeline", "log")  # on a page
FOUND: Final = 1_000  # processes whose news a search finds
SHOWN: Final = 100_000  # characters of a log on a page

# --- What is done, what would come of it, and why nothing was -------------------------------------


def _kill(process: ProcessRecord, actor: str, reason: str) -> str:
    if intake.kill_for_operator(process_id=process.pk, actor=actor, reason=reason):
        return ""
    return gettext("it has ended, or its end was asked for already")


def _foresee_kill(rows: Sequence[ProcessRecord]) -> list[str]:
    return [
        gettext("unchanged: it has ended")
        if not row.is_active
        else gettext("unchanged: its end was asked for already")
        if row.kill_asked_at is not None
        else gettext("ended")
        for row in rows
    ]


def _redeliver(event: CompletionEvent, actor: str, reason: str) -> str:
    if intake.redeliver(event_id=event.pk, actor=actor, why=reason):
        return ""
    return gettext("it is neither dropped nor quiet")


def _foresee_redeliver(rows: Sequence[CompletionEvent]) -> list[str]:
    found = verdicts.foresee(row.pk for row in rows)
    return [
        domain.in_words(found[row.pk])
        if row.pk in found
        else gettext("unchanged: it is neither dropped nor quiet")
        for row in rows
    ]


def _show(event: CompletionEvent, actor: str, reason: str) -> str:
    if intake.show_quietly(event_id=event.pk, actor=actor, why=reason):
        return ""
    if event.status in verdicts.SHOWABLE:
        return gettext("its session is gone")
    return gettext("it is neither waiting nor dropped")


def _foresee_show(rows: Sequence[CompletionEvent]) -> list[str]:
    found = []
    for row in rows:
        if row.status not in verdicts.SHOWABLE:
            found.append(gettext("unchanged: it is neither waiting nor dropped"))
        elif verdicts.place_of(row) is None:
            found.append(gettext("unchanged: its session is gone"))
        else:
            found.append(gettext("shown quietly"))
    return found


def _discard(event: CompletionEvent, actor: str, reason: str) -> str:
    if intake.discard(event_id=event.pk, actor=actor, why=reason):
        return ""
    return gettext("it is neither waiting nor quiet")


def _foresee_discard(rows: Sequence[CompletionEvent]) -> list[str]:
    return [
        gettext("discarded")
        if row.status in verdicts.DISCARDABLE
        else gettext("unchanged: it is neither waiting nor quiet")
        for row in rows
    ]


def _revoke(approval: Approval, actor: str, reason: str) -> str:
    if intake.revoke_for_operator(approval_id=approval.pk, actor=actor, reason=reason):
        return ""
    return gettext("it is no Always, or was taken back already")


# --- Pages ----------------------------------------------------------------------------------------


class LogAdmin(TranscriptAdmin):
    """Rows that hold commands and their output: read with a permission, and that is recorded."""

    read_permission = READ
    hidden_word = HIDDEN


class Active(admin.SimpleListFilter):
    """Processes that may have a child, and those whose end did not succeed."""

    title, parameter_name = _("now"), "now"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """What can be asked for."""
        return [("active", _("running")), ("survives", _("survived its kill"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of which it is so."""
        if self.value() == "active":
            return queryset.filter(status__in=sorted(domain.ACTIVE))
        if self.value() == "survives":
            return queryset.filter(status__in=sorted(domain.ACTIVE), kill_failed_at__isnull=False)
        return queryset


@admin.register(ProcessRecord)
class ProcessAdmin(OperationsMixin, LogAdmin):
    """Processes: whose, how they stand or ended; what they wrote, for whom that is permitted."""

    text_fields = ("command", "tail", "imported")
    list_display = (
        "uid",
        "status",
        "told",
        "owner_id_meant",
        "host",
        "sandbox",
        "output_bytes",
        "created_at",
        "ended_at",
    )
    list_filter = (Active, "status", "reason")
    search_fields = ("uid__exact", "origin_chat__exact", "origin_session__exact")
    ordering = ("-id",)
    readonly_fields = ("told", "news", "timeline")
    operations = (
        Operation(
            "kill",
            _("Kill"),
            _("It and everything that it started is ended: TERM, and KILL after two seconds."),
            "processes_app.kill_process",
            _kill,
            is_danger=True,
            foresee=_foresee_kill,
            asks_password=True,
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """The log for whom it is permitted."""
        fields = super().get_readonly_fields(request, obj)
        return [*fields, "log"] if request.user.has_perm(READ) else fields

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """What is looked for first comes first."""
        fields = list(super().get_fields(request, obj))
        first = [name for name in FIRST if name in fields]
        return first + [name for name in fields if name not in first]

    @admin.display(description=_("outcome"))
    def told(self, process: ProcessRecord) -> str:
        """How it stands or ended, in words."""
        return process.outcome

    @admin.display(description=_("completions"))
    def news(self, process: ProcessRecord) -> SafeString:
        """What became of the news of its end."""
        event = process.events.defer("title", "body").order_by("-pk").first()
        if event is None:
            return SafeString("–")
        place = reverse("admin:processes_app_completionevent_change", args=[event.pk])
        return format_html('<a href="{}">{}: {}</a>', place, event, standing(event))

    @admin.display(description=_("log"))
    def log(self, process: ProcessRecord) -> SafeString:
        """What it has written so far, redacted; the end of it where that is long."""
        folder = files.Folder.of(process.uid)
        is_here = folder.path.exists()
        text = folder.output().text if is_here else process.tail
        where = "" if is_here else gettext("The whole of it is on the host that ran it; its end:")
        return format_html(
            '<p>{}</p><pre class="whitespace-pre-wrap break-words">{}</pre>',
            where,
            domain.tail(text, SHOWN) or gettext("It has written nothing."),
        )

    @admin.display(description=_("timeline"))
    def timeline(self, process: ProcessRecord) -> SafeString:
        """Every move of it, from the history."""
        return timeline(f"process:{process.pk}")


def standing(event: CompletionEvent) -> str:
    """Where an event stands, with the reason for it."""
    why = event.reason or event.quiet_because or event.held
    return f"{event.status}: {why}" if why else str(event.status)


class Due(admin.SimpleListFilter):
    """Events that nobody has settled although their time has come."""

    title, parameter_name = _("due"), "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Due now, or held back."""
        return [("now", _("now")), ("held", _("held back"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Pending ones of that kind."""
        pending = queryset.filter(status=EventStatus.PENDING)
        if self.value() == "now":
            return pending.filter(due_at__lte=DbNow())
        return pending.filter(~Q(held="")) if self.value() == "held" else queryset


class Quiet(admin.SimpleListFilter):
    """Events that are shown without a turn, by the reason for it."""

    title, parameter_name = _("shown quietly because"), "quiet"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The reasons that there are."""
        return [(str(each), str(each)) for each in domain.QuietReason]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those shown for this reason."""
        if not self.value():
            return queryset
        return queryset.filter(status=EventStatus.QUIET, quiet_because=self.value())


@admin.register(CompletionEvent)
class CompletionAdmin(OperationsMixin, LogAdmin):
    """News of ends: where it stands, why it was dropped, and to whom it went."""

    text_fields = ("title", "body")
    list_display = ("id", "where", "kind", "process", "origin_chat", "happened_at", "settled_at")
    list_filter = (Due, "status", "reason", Quiet)
    list_select_related = ("process",)
    search_fields = ("origin_session__exact",)
    search_help_text = _("Number, process, or the address of a chat or session; the whole of it.")
    ordering = ("-id",)
    readonly_fields = ("where", "timeline")
    operations = (
        Operation(
            "redeliver",
            _("Redeliver"),
            _("What was dropped or shown quietly is judged again by the same table."),
            "processes_app.redeliver_completion",
            _redeliver,
            foresee=_foresee_redeliver,
        ),
        Operation(
            "show",
            _("Deliver as quiet row"),
            _("It is shown in its session and starts no turn."),
            "processes_app.show_completion",
            _show,
            foresee=_foresee_show,
        ),
        Operation(
            "discard",
            _("Discard"),
            _("It is delivered to nobody. Its output stays readable with the process."),
            "processes_app.discard_completion",
            _discard,
            is_danger=True,
            foresee=_foresee_discard,
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Neither its own texts nor those of its process."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer(
            *self.text_fields, *(f"process__{name}" for name in ProcessAdmin.text_fields)
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What is about a process, chat or session of this name, or has this number; by indexes."""
        term = search_term.strip()
        if not term:
            return queryset, False
        named = Q(uid=term) | Q(origin_chat=term) | Q(origin_session=term)
        processes = ProcessRecord.objects.filter(named).order_by("-pk").values_list("pk", flat=True)
        wanted = Q(process__in=list(processes[:FOUND])) | Q(origin_session=term)
        if term.isdecimal() and len(term) < 19:
            wanted |= Q(pk=int(term))
        return queryset.filter(wanted), False

    @admin.display(description=_("state"))
    def where(self, event: CompletionEvent) -> str:
        """Where it stands, with the reason."""
        return standing(event)

    @admin.display(description=_("timeline"))
    def timeline(self, event: CompletionEvent) -> SafeString:
        """Every move of it, from the history."""
        return timeline(f"completion:{event.pk}")


@admin.register(Approval)
class ApprovalAdmin(OperationsMixin, LogAdmin):
    """Approvals: who was asked, what they said, and what always holds."""

    text_fields = ("command",)
    list_display = (
        "id",
        "state",
        "answer",
        "owner_id_meant",
        "origin_chat",
        "is_steered",
        "until",
        "answered_at",
        "revoked_at",
    )
    list_filter = ("status", "answer")
    search_fields = ("origin_chat__exact",)
    ordering = ("-id",)
    readonly_fields = ("state", "timeline")
    operations = (
        Operation(
            "revoke",
            _("Revoke"),
            _("What was always allowed is asked for again from the next time on."),
            "processes_app.revoke_approval",
            _revoke,
        ),
    )

    @admin.display(description=_("state"))
    def state(self, approval: Approval) -> str:
        """How it stands; an Always that was taken back says so."""
        if approval.revoked_at is not None:
            return gettext("revoked")
        return str(ApprovalStatus(approval.status))

    @admin.display(description=_("timeline"))
    def timeline(self, approval: Approval) -> SafeString:
        """Every move of it, from the history."""
        return timeline(f"approval:{approval.pk}")
