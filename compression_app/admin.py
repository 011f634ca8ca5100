"""What operators see of compaction, and what they may do about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

from django.conf import settings
from django.contrib import admin
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from hermes.lib.admin import Operation, OperationsMixin, ReadOnlyAdmin
from hermes.lib.db import DbNow
from hermes.lib.lists import ValuesFilter
from sessions_app import admin as sessions
from sessions_app.admin import TranscriptAdmin, timeline
from sessions_app.models import ModelEndpoint, Session

from . import intake
from .models import OPEN as OPEN_STATES
from .models import CompactionAttempt, CompressionState, Cooldown

TRIGGER: Final = "compression_app.trigger_compaction"
CANCEL: Final = "compression_app.cancel_compaction"
CLEAR: Final = "compression_app.clear_cooldown"
PAUSE: Final = "compression_app.pause_compaction"
NO_SESSION = _("this row is not about a session")

# --- What is done, and why nothing was ------------------------------------------------------------


def _session_of(row: Any) -> int | None:
    found = row.pk if isinstance(row, Session) else row.session_id
    return None if found is None else int(found)


def _opened(row: Any, actor: str, reason: str, *, clears: bool) -> Any:
    session_id = _session_of(row)
    if session_id is None:
        return NO_SESSION
    opened = intake.trigger_for_operator(
        session_id=session_id, actor=actor, reason=reason, clears=clears
    )
    if isinstance(opened, CompactionAttempt):
        return ""
    return gettext("no attempt was opened (%(reason)s)") % {"reason": opened.reason}


def _trigger(row: Any, actor: str, reason: str) -> Any:
    return _opened(row, actor, reason, clears=False)


def _retry(row: Any, actor: str, reason: str) -> Any:
    return _opened(row, actor, reason, clears=True)


def _clear(row: Any, actor: str, reason: str) -> Any:
    session_id = _session_of(row)
    if session_id is None:
        return NO_SESSION
    cleared = intake.clear_for_operator(session_id=session_id, actor=actor, reason=reason)
    return "" if cleared else gettext("no cooldown is active")


def _cancel(row: CompactionAttempt, actor: str, reason: str) -> Any:
    if intake.cancel_for_operator(attempt_id=row.pk, actor=actor, reason=reason):
        return ""
    return gettext("it has ended already")


def _scope(row: Any) -> str:
    return f"endpoint:{row.pk}" if isinstance(row, ModelEndpoint) else str(row.scope)


def _pause(row: Any, actor: str, reason: str) -> Any:
    if getattr(row, "session_id", None) is not None:
        return gettext("a single session is not paused; cancel its attempt instead")
    if intake.set_paused(scope=_scope(row), paused=True, actor=actor, reason=reason):
        return ""
    return gettext("it is paused already")


def _resume(row: Any, actor: str, reason: str) -> Any:
    if intake.set_paused(scope=_scope(row), paused=False, actor=actor, reason=reason):
        return ""
    return gettext("it is not paused")


OPEN: Final = (
    Operation(
        "trigger",
        _("Summarise"),
        _("Opens an attempt now, past cooldowns and breakers, which stay as they are."),
        TRIGGER,
        _trigger,
    ),
    Operation(
        "retry_now",
        _("Retry now"),
        _("Clears the active cooldowns of the session and opens an attempt."),
        TRIGGER,
        _retry,
    ),
    Operation(
        "clear_cooldown",
        _("Clear cooldowns"),
        _("Automatic attempts of the session may begin again at the next mark."),
        CLEAR,
        _clear,
    ),
)
PAUSES: Final = (
    Operation(
        "pause",
        _("Pause compaction"),
        _("No automatic attempt begins until it is resumed; what runs goes on."),
        PAUSE,
        _pause,
        is_danger=True,
    ),
    Operation(
        "resume",
        _("Resume compaction"),
        _("Automatic attempts may begin again."),
        PAUSE,
        _resume,
    ),
)


# --- Pages ----------------------------------------------------------------------------------------


class YesNo(admin.SimpleListFilter):
    """A filter by something that is so or is not."""

    condition: ClassVar[Q]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Yes and no."""
        return [("1", _("yes")), ("0", _("no"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of which it is, or is not, so."""
        if self.value() not in {"0", "1"}:
            return queryset
        if self.value() == "1":
            return queryset.filter(self.condition)
        # Not ``exclude``: where a column is null, neither the condition nor its opposite is true.
        is_so = Case(When(self.condition, then=Value(True)), default=Value(False))
        rows: QuerySet[Any] = queryset.alias(is_so=is_so).filter(is_so=False)
        return rows


class DeferredFilter(YesNo):
    """Attempts whose turn was let go."""

    title, parameter_name = _("deferred"), "deferred"
    condition = Q(hold_released_at__isnull=False)


class HeldFilter(YesNo):
    """Attempts that a turn waits for now."""

    title, parameter_name = _("holds a turn now"), "held"
    condition = Q(
        status__in=OPEN_STATES, hold_started_at__isnull=False, hold_released_at__isnull=True
    )


class WasHeldFilter(YesNo):
    """Attempts that a turn has waited for."""

    title, parameter_name = _("has held a turn"), "was_held"
    condition = Q(hold_started_at__isnull=False)


class OverFilter(YesNo):
    """Attempts that a turn has waited for longer than it should."""

    title, parameter_name = _("held beyond the budget"), "over"

    @property
    def condition(self) -> Q:  # type: ignore[override] # the setting is read when it is asked
        """Released, or ended, more than a second after the budget."""
        most = timedelta(seconds=settings.HERMES_TURN_HOLD_SECONDS + 1)
        return Q(hold_released_at__gt=F("hold_started_at") + most) | Q(
            hold_released_at=None, finished_at__gt=F("hold_started_at") + most
        )


class InVainFilter(YesNo):
    """Attempts that spent tokens and committed nothing."""

    title, parameter_name = _("spent without a commit"), "spent_in_vain"
    condition = Q(prompt_tokens__gt=0, finished_at__isnull=False) & ~Q(status="committed")


class ActiveFilter(YesNo):
    """Cooldowns that count now."""

    title, parameter_name = _("active"), "active"
    condition = Q(cleared_at=None, until__gt=DbNow())


class StreakFilter(YesNo):
    """Sessions whose last attempts failed."""

    title, parameter_name = _("failures in a row"), "streak"
    condition = Q(streak__gt=0)


class PausedFilter(YesNo):
    """Places where compaction is paused."""

    title, parameter_name = _("paused"), "paused"
    condition = Q(paused_at__isnull=False)


class BreakerFilter(YesNo):
    """Breakers that are open."""

    title, parameter_name = _("breaker open"), "breaker"
    condition = Q(breaker_until__gt=DbNow()) | Q(ineffective__gte=2) | Q(grew__gte=2)


@admin.register(CompactionAttempt)
class AttemptAdmin(OperationsMixin, TranscriptAdmin):
    """Attempts: how each one went, what it cost, and why it ended."""

    text_fields = ("text", "focus")
    list_display = (
        "id",
        "session",
        "status",
        "trigger",
        "reason",
        "model_name",
        "shrank",
        "spent",
        "is_deferred",
        "took",
        "opened_at",
    )
    list_filter = (
        "status",
        "trigger",
        ("reason", ValuesFilter),
        DeferredFilter,
        HeldFilter,
        WasHeldFilter,
        OverFilter,
        InVainFilter,
        "opened_at",
    )
    list_select_related = ("session",)
    search_fields = ("id__exact", "session__key__exact")
    ordering = ("-id",)
    readonly_fields = ("timeline",)
    operations = (
        Operation(
            "cancel",
            _("Cancel"),
            _("The attempt ends without a summary; the next one waits for a minute."),
            CANCEL,
            _cancel,
            is_danger=True,
        ),
        *OPEN,
    )

    @admin.display(description=_("timeline"))
    def timeline(self, attempt: CompactionAttempt) -> SafeString:
        """Every move of it, from the history."""
        return timeline(f"attempt:{attempt.pk}")

    @admin.display(description=_("tokens before → after"))
    def shrank(self, attempt: CompactionAttempt) -> str:
        """How far the context shrank, or would have."""
        return f"{attempt.before_tokens:,} → {attempt.after_tokens:,}"

    @admin.display(description=_("tokens spent"))
    def spent(self, attempt: CompactionAttempt) -> str:
        """What the provider counted."""
        return f"{attempt.prompt_tokens + attempt.completion_tokens:,}"

    @admin.display(boolean=True, description=_("deferred"))
    def is_deferred(self, attempt: CompactionAttempt) -> bool:
        """Whether its turn was let go while it went on."""
        return attempt.hold_released_at is not None

    @admin.display(description=_("seconds"))
    def took(self, attempt: CompactionAttempt) -> str:
        """From its opening to its end."""
        if attempt.finished_at is None:
            return "–"
        return f"{(attempt.finished_at - attempt.opened_at).total_seconds():.1f}"


@admin.register(Cooldown)
class CooldownAdmin(OperationsMixin, ReadOnlyAdmin):
    """Cooldowns: until when, why, and who cleared them."""

    list_display = ("id", "session", "kind", "reason", "until", "is_active", "cleared_by")
    list_filter = (ActiveFilter, "kind", ("reason", ValuesFilter), "created_at")
    list_select_related = ("session",)
    search_fields = ("session__key__exact",)
    ordering = ("-id",)
    operations = OPEN[1:]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Cooldowns, and whether each counts by the database's clock."""
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.annotate(counts=Q(cleared_at=None) & Q(until__gt=DbNow()))
        return rows

    @admin.display(boolean=True, description=_("active"))
    def is_active(self, cooldown: Cooldown) -> bool:
        """Whether it counts now."""
        return bool(cooldown.counts)  # type: ignore[attr-defined] # annotated above


@admin.register(CompressionState)
class StateAdmin(OperationsMixin, ReadOnlyAdmin):
    """What outlives attempts: failures in a row, breakers, pauses."""

    list_display = (
        "scope",
        "session",
        "streak",
        "ineffective",
        "grew",
        "breaker_until",
        "paused_at",
        "paused_by",
    )
    list_filter = (StreakFilter, BreakerFilter, PausedFilter)
    list_select_related = ("session",)
    search_fields = ("scope__exact",)
    sortable_by = ("scope",)
    ordering = ("-streak", "-id")
    readonly_fields = ("timeline",)
    operations = (*OPEN, *PAUSES)

    @admin.display(description=_("timeline"))
    def timeline(self, state: CompressionState) -> SafeString:
        """What the history holds of it."""
        return timeline(state.scope)


admin.site.unregister(Session)
admin.site.unregister(ModelEndpoint)


@admin.register(Session)
class SessionAdmin(OperationsMixin, sessions.SessionAdmin):
    """Sessions, which may be summarised."""

    operations = OPEN


@admin.register(ModelEndpoint)
class ModelEndpointAdmin(OperationsMixin, sessions.ModelEndpointAdmin):
    """Endpoints, at which compaction may be paused."""

    operations = PAUSES
