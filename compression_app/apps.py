"""How Django finds this application."""

from __future__ import annotations

from django.apps import AppConfig


class CompressionConfig(AppConfig):
    """Configuration of ``compression_app``."""

    name = "compression_app"
