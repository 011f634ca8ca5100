"""What was asked, what happened, and what runs periodically."""

from __future__ import annotations

from typing import Final

from django.db import models
from django.db.models import Q

from hermes.lib.db import DbNow

from .chats import Chat


class ClientRequest(models.Model):
    """What a client asked once under an id of its own; asked again, it gets the same reply."""

    chat = models.ForeignKey(Chat, on_delete=models.PROTECT, related_name="client_requests")
    client_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=24)
    text_hash = models.CharField(max_length=64, blank=True, default="")
    reply = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=DbNow())

    class Meta:
        constraints = [
            models.UniqueConstraint(name="client_request_id_per_chat", fields=["chat", "client_id"])
        ]

    def __str__(self) -> str:
        return f"request {self.chat_id}/{self.client_id}"


# Kinds of which the rows of turns, attempts, processes and completions tell the same.
TOLD_BY_ROWS: Final = ("attempt", "completion", "hold", "process", "turn")


class History(models.Model):
    """What happened, appended by every single writer in the transaction of the fact itself.

    A trigger refuses UPDATE and DELETE, also those of the admin and of a shell.
    """

    at = models.DateTimeField(db_default=DbNow())
    chat = models.BigIntegerField(null=True)
    session = models.BigIntegerField(null=True)
    subject = models.CharField(max_length=40)  # e.g. "turn:17"
    kind = models.CharField(max_length=40)
    frm = models.CharField(max_length=24, blank=True, default="", db_column="from")
    to = models.CharField(max_length=24, blank=True, default="")
    reason = models.CharField(max_length=200, blank=True, default="")
    actor = models.CharField(max_length=150, blank=True, default="")
    data = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "history"
        indexes = [
            models.Index("session", "id", name="history_session"),
            models.Index(
                "session",
                "id",
                name="history_untold",
                condition=~Q(kind__in=TOLD_BY_ROWS),
            ),
            models.Index("subject", "id", name="history_subject"),
            models.Index("kind", "id", name="history_kind"),
            models.Index("actor", "id", name="history_actor", condition=~Q(actor="")),
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.kind} {self.frm}→{self.to}"


class Periodic(models.Model):
    """Periodic work: when it last ran, and until when it may be running."""

    name = models.CharField(max_length=40, primary_key=True)
    last_run_at = models.DateTimeField()
    busy_until = models.DateTimeField(null=True, blank=True)
    busy_by = models.CharField(max_length=200, blank=True, default="")  # who runs it

    def __str__(self) -> str:
        return self.name
