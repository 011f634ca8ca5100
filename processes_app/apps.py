"""How Django finds this application."""

from __future__ import annotations

from django.apps import AppConfig


class ProcessesConfig(AppConfig):
    """Configuration of ``processes_app``."""

    name = "processes_app"
