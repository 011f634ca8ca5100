"""How Django finds this application."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SessionsConfig(AppConfig):
    """Configuration of ``sessions_app``."""

    name = "sessions_app"
    verbose_name = _("Chats")

    def ready(self) -> None:
        """Listen to what workers say."""
        from . import receivers as _receivers  # noqa: F401 - needs loaded models
