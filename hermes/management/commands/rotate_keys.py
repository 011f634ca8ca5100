"""``manage.py rotate_keys``: what the database keeps encrypted, under the newest key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from hermes.dashboard import alerts, factors
from sessions_app import intake


class Command(BaseCommand):
    """Seal every stored secret anew; safe to run again, also while Hermes runs."""

    help = "Seals every stored secret anew under the first key of HERMES_SECRET_KEYS."

    def handle(self, *args: Any, **options: Any) -> None:
        """Reseal, and say what could not be opened."""
        try:
            moved, unopened = intake.reseal_keys()
            others = [alerts.reseal(), factors.reseal()]
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}".strip()) from error
        for count, closed in others:
            moved, unopened = moved + count, [*unopened, *closed]
        self.stdout.write(f"Sealed anew under the first key of HERMES_SECRET_KEYS: {moved}.")
        if unopened:
            names = ", ".join(unopened)
            raise CommandError(
                f"No key of HERMES_SECRET_KEYS opens what is kept for: {names}. Put the key that "
                "sealed it behind the new one and run this again, or enter these keys again in "
                "the admin."
            )
