"""How Django finds this application."""

from __future__ import annotations

from django.apps import AppConfig


class CompressionConfig(AppConfig):
    """Configuration of ``compression_app``."""

    name = "compression_app"

    def ready(self) -> None:
        """Listen to the transcript's hints."""
        from . import receivers as _receivers  # noqa: F401 - needs loaded models
