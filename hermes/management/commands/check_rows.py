"""``manage.py check_rows``: hold every session against the invariants that its rows must keep."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils.module_loading import import_string


class Command(BaseCommand):
    """Names violated invariants; exit code 1 if there are any."""

    help = "Hold rows against the invariants that must always hold."

    def add_arguments(self, parser: CommandParser) -> None:
        """One session, or all."""
        parser.add_argument("--session", type=int, help="the number of one session")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, and say what was found."""
        found = [
            line
            for name in settings.HERMES_INVARIANTS
            for line in import_string(name)(options["session"])
        ]
        for line in found:
            self.stdout.write(line)
        if found:
            raise SystemExit(1)
        self.stdout.write("Every invariant holds.")
