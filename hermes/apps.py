"""How Django finds the project package."""

from __future__ import annotations

from django.apps import AppConfig


class HermesConfig(AppConfig):
    """Configuration of ``hermes``: commands, and the Celery application in every process."""

    name = "hermes"

    def ready(self) -> None:
        """Import the Celery application, so that hints go to the right broker, and the checks."""
        from . import celery as _celery  # noqa: F401 - needs loaded settings
        from . import checks as _checks  # noqa: F401 - importing registers them
