"""``manage.py import_checkpoint``: take running processes over from the peer's file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from processes_app import checkpoint


class Command(BaseCommand):
    """Restore the processes of a checkpoint file, and say what was left out and why."""

    help = "Restores running processes from a processes.json; a second run restores none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The file."""
        parser.add_argument("file", type=Path, help="processes.json of the peer")

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore and report."""
        try:
            result = checkpoint.restore(options["file"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"restored {result.count}, skipped {len(result.skipped)}")
        for line in result.skipped:
            self.stdout.write(f"  {line}")
