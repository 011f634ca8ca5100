"""How Django finds the operators' desk."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Configuration of the operators' pages, their rollups and alerts."""

    name = "hermes.dashboard"
    label = "dashboard"
    verbose_name = "Desk"

    def ready(self) -> None:
        """Let workers, beat and supervisors tell that they live."""
        from django.contrib.auth import signals

        from . import logins
        from . import receivers as _receivers  # noqa: F401 - importing connects them

        signals.user_login_failed.connect(logins.on_failure)
        signals.user_logged_in.connect(logins.on_login)
