"""What operators see of the desk's own rows: signs of life, checks, alerts and their channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminPasswordWidget

from hermes.lib import vault
from hermes.lib.admin import FreshMixin, Operation, OperationsMixin, ReadOnlyAdmin
from hermes.lib.db import DbNow, db_now
from hermes.lib.lists import AskedMixin, ValuesFilter
from hermes.lib.outbound import BadAddress, check_base_url
from sessions_app import intake
from sessions_app.records import RecordedMixin

from . import factors
from .heartbeats import GONE
from .models import (
    Alert,
    AlertChannel,
    AlertNotice,
    CheckResult,
    Heartbeat,
    LoginFailure,
    SecondFactor,
    Silence,
)

SILENT: Final = timedelta(hours=24)


@transaction.atomic
def _forget(row: Heartbeat, actor: str, reason: str) -> str:
    gone, _rows = Heartbeat.objects.filter(pk=row.pk, seen_at__lte=DbNow() - GONE).delete()
    if not gone:
        return gettext("it lives, or is not there any more")
    intake.record_operation(
        subject=f"process:{row.kind}@{row.host}"[:40], what="forget", actor=actor, reason=reason
    )
    return ""


@admin.register(Heartbeat)
class HeartbeatAdmin(OperationsMixin, ReadOnlyAdmin):
    """Processes of the product, and when each was last seen."""

    operations = (
        Operation(
            "forget",
            _("Wait for it no more"),
            _("A process that is gone for good is no trouble any more; one that lives stays."),
            "dashboard.delete_heartbeat",
            _forget,
        ),
    )
    list_display = ("kind", "host", "queues", "version", "began_at", "seen_at", "is_up")
    list_filter = ("kind", ("host", ValuesFilter))
    sortable_by = None  # a few rows
    ordering = ("kind", "-seen_at")

    def get_queryset(self, request: HttpRequest) -> Any:
        """The rows, each with whether it was seen a moment ago by the clock of the database."""
        return super().get_queryset(request).annotate(up=Q(seen_at__gt=DbNow() - GONE))

    @admin.display(boolean=True, description=_("up"))
    def is_up(self, row: Any) -> bool:
        """Whether it was seen a moment ago."""
        return bool(row.up)


@admin.register(CheckResult)
class CheckResultAdmin(ReadOnlyAdmin):
    """What the checks of all rows found."""

    list_display = ("name", "at", "violations")
    sortable_by = None  # a few rows
    ordering = ("name",)


# --- Alerts ---------------------------------------------------------------------------------------


@transaction.atomic
def _silence(row: Alert, actor: str, reason: str) -> str:
    alert = Alert.objects.select_for_update(no_key=True).get(pk=row.pk)  # of two clicks, one
    if alert.cleared_at is not None:
        return gettext("it is over already")
    now = db_now()
    if Silence.objects.filter(rule=alert.rule, subject=alert.subject, until__gt=now).exists():
        return gettext("it is silent already")
    Silence.objects.create(
        rule=alert.rule, subject=alert.subject, until=now + SILENT, reason=reason, actor=actor
    )
    intake.record_operation(subject=f"alert:{alert.pk}", what="silence", actor=actor, reason=reason)
    return ""


class OpenFilter(admin.SimpleListFilter):
    """Alerts whose condition holds, or held."""

    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Firing, pending, over."""
        return [("firing", _("firing")), ("pending", _("pending")), ("over", _("over"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """The rows in the chosen state."""
        match self.value():
            case "firing":
                return queryset.filter(cleared_at=None, is_firing=True)
            case "pending":
                return queryset.filter(cleared_at=None, is_firing=False)
            case "over":
                return queryset.filter(cleared_at__isnull=False)
        return queryset


@admin.register(Alert)
class AlertAdmin(OperationsMixin, ReadOnlyAdmin):
    """Alerts, those that hold and those that are over."""

    list_display = (
        "id",
        "rule",
        "subject",
        "level",
        "value",
        "worst",
        "since",
        "is_firing",
        "told_at",
        "cleared_at",
    )
    list_filter = (OpenFilter, ("rule", ValuesFilter), "level")
    ordering = ("-id",)
    operations = (
        Operation(
            "silence",
            _("Silence for a day"),
            _("Nobody is told of this rule and subject for 24 hours; it stays in this list."),
            "dashboard.silence_alert",
            _silence,
        ),
    )


@admin.register(AlertNotice)
class AlertNoticeAdmin(ReadOnlyAdmin):
    """What was sent, to whom, and what was not."""

    list_display = ("id", "alert", "channel", "what", "created_at", "tries", "sent_at", "detail")
    list_filter = ("channel", "what")
    list_select_related = ("alert", "channel")
    ordering = ("-id",)


class ChannelForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's is generic in stubs only
    """A channel, with a token that is written and never read back."""

    key = forms.CharField(
        label=_("Token"),
        required=False,
        strip=True,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}),
        help_text=_("Sent as bearer token with a webhook. Left empty, it stays as it is."),
    )

    class Meta:
        model = AlertChannel
        fields = ("name", "kind", "address", "is_enabled", "only_bad")

    def clean(self) -> dict[str, Any]:
        """Refuse an address that nothing would be sent to, where it is entered."""
        cleaned: dict[str, Any] = super().clean() or {}
        address = cleaned.get("address", "")
        if cleaned.get("kind") == AlertChannel.Kind.WEBHOOK:
            try:
                check_base_url(
                    address,
                    allow_loopback=settings.HERMES_ALLOW_LOOPBACK_MODELS,
                    allowed_hosts=settings.HERMES_MODEL_HOSTS,
                )
            except BadAddress as error:
                self.add_error("address", str(error))
        elif address:
            for each in address.split(","):
                try:
                    validate_email(each.strip())
                except forms.ValidationError as error:
                    self.add_error("address", error)
        return cleaned


@admin.register(AlertChannel)
class AlertChannelAdmin(RecordedMixin, AskedMixin, FreshMixin, ModelAdmin):
    """Where alerts are sent."""

    form = ChannelForm
    recorded = ("name", "kind", "is_enabled", "only_bad")  # an address may hold a secret
    list_display = ("name", "kind", "address", "only_bad", "is_enabled")
    list_filter = ("kind", "is_enabled")

    def save_model(self, request: HttpRequest, obj: AlertChannel, form: Any, change: bool) -> None:
        """Save; a token stays only with the address that it was given for."""
        if form.cleaned_data["key"]:
            obj.sealed_key = vault.seal(form.cleaned_data["key"])
        elif "address" in form.changed_data:
            obj.sealed_key = ""
        super().save_model(request, obj, form, change)


def _forget_factor(row: SecondFactor, actor: str, reason: str) -> str:
    if factors.forget(row.user_id, actor=actor, reason=reason):
        return ""
    return gettext("it is not there any more")


@admin.register(SecondFactor)
class SecondFactorAdmin(OperationsMixin, ReadOnlyAdmin):
    """Who has an authenticator app; secrets are never shown."""

    list_display = ("user", "confirmed_at", "created_at")
    list_select_related = ("user",)
    exclude = ("sealed_secret", "recovery", "last_step")
    sortable_by = None  # a few rows
    ordering = ("-id",)
    operations = (
        Operation(
            "forget_factor",
            _("Take away"),
            _("The person signs in with the password alone and may set up another app."),
            "dashboard.forget_second_factor",
            _forget_factor,
            is_danger=True,
            asks_password=True,
        ),
    )


@transaction.atomic
def _unlock(row: LoginFailure, actor: str, reason: str) -> str:
    gone, _rows = LoginFailure.objects.filter(address=row.address, name=row.name).delete()
    if not gone:
        return gettext("it is not there any more")
    intake.record_operation(
        subject=f"address:{row.address}"[:40], what="unlock", actor=actor, reason=reason
    )
    return ""


@admin.register(LoginFailure)
class LoginFailureAdmin(OperationsMixin, ReadOnlyAdmin):
    """Wrong passwords of the last day, by address; names are hashes."""

    list_display = ("id", "name", "address", "at")
    list_filter = (("address", ValuesFilter),)
    ordering = ("-id",)
    operations = (
        Operation(
            "unlock",
            _("Unlock"),
            _("Earlier wrong passwords of this name from this address count no more."),
            "dashboard.unlock_login",
            _unlock,
        ),
    )


@admin.register(Silence)
class SilenceAdmin(ReadOnlyAdmin):
    """Rules that tell nobody for a while."""

    list_display = ("rule", "subject", "until", "actor", "reason")
    ordering = ("-id",)
