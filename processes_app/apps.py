"""How Django finds this application."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ProcessesConfig(AppConfig):
    """Configuration of ``processes_app``."""

    name = "processes_app"
    verbose_name = _("Processes")

    def ready(self) -> None:
        """Listen to the transcript's hints."""
        from . import receivers as _receivers  # noqa: F401 - needs loaded models
