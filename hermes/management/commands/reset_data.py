"""``manage.py reset_data``: begin again with an empty embedded database and broker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from hermes.management.servers import CannotStart
from hermes.management.servers.embedded import EmbeddedServers
from hermes.management.servers.files import private_folder
from hermes.management.start.lock import hold


class Command(BaseCommand):
    """Delete what the embedded servers hold; keys and settings stay."""

    help = "Deletes the embedded database and broker. Keys and settings stay."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """``--yes`` answers the question."""
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask, stop what a killed start left, delete."""
        var = Path(settings.VAR)
        if not options["yes"]:
            answer = input(f"Delete every chat in {var}? This cannot be undone. Type yes: ")
            if answer.strip().lower() != "yes":
                raise CommandError("Nothing was deleted.")
        try:
            run_folder = private_folder(private_folder(var) / "run")
            with hold(run_folder / "up.lock", "reset_data"):
                EmbeddedServers(var).stop()
                for name in ("postgres", "valkey"):
                    shutil.rmtree(var / name, ignore_errors=True)
                (var / "admin_password").unlink(missing_ok=True)
        except CannotStart as error:
            raise CommandError(" ".join(str(error).split())) from error
        self.stdout.write("Deleted. The next start makes a new admin.")
