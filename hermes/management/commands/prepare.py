"""``manage.py prepare``: tables, the first admin and first endpoints; safe to run again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from hermes.management.servers.trouble import CannotStart
from hermes.management.start.preparation import Prepared, prepare


class Command(BaseCommand):
    """Bring the database up to date and make the first admin."""

    help = "Migrates, makes the first admin and the first model endpoints; safe to run again."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """``--json`` is how the start command learns what to print."""
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, and tell how to log in."""
        try:
            done = prepare()
        except CannotStart as error:
            raise CommandError(" ".join(str(error).split())) from error
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}".strip()) from error
        self.stdout.write(json.dumps(asdict(done)) if options["json"] else login_line(done))


def login_line(done: Prepared) -> str:
    """How to log in, in one line."""
    if done.new_password:
        return (
            f"user {done.username}, password {done.new_password} "
            f"(shown only now; kept in {done.password_file})"
        )
    if done.password_file:
        return f"user {done.username}, first password in {done.password_file}"
    return f"user {done.username}, with the password that you set"
