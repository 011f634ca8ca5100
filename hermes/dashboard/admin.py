"""What operators see of the desk's own rows: signs of life, checks."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from hermes.lib.admin import ReadOnlyAdmin
from hermes.lib.db import db_now

from .heartbeats import GONE
from .models import CheckResult, Heartbeat


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin):
    """Processes of the product, and when each was last seen."""

    list_display = ("kind", "host", "queues", "version", "began_at", "seen_at", "is_up")
    list_filter = ("kind", "host")
    ordering = ("kind", "-seen_at")

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> object:
        """The list, with the clock of the database read once."""
        self.now = db_now()
        return super().changelist_view(request, extra_context)

    @admin.display(boolean=True, description=_("up"))
    def is_up(self, row: Heartbeat) -> bool:
        """Whether it was seen a moment ago."""
        return (getattr(self, "now", None) or db_now()) - row.seen_at < GONE


@admin.register(CheckResult)
class CheckResultAdmin(ReadOnlyAdmin):
    """What the checks of all rows found."""

    list_display = ("name", "at", "violations")
    ordering = ("name",)
