"""Chats and their sessions."""

from __future__ import annotations

import uuid
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from hermes.lib.db import DbNow, locked
from sessions_app import domain
from sessions_app.domain import EndReason

from .base import LockingQuerySet, choices


class ChatQuerySet(LockingQuerySet["Chat"]):
    """Chats, and who may see which."""

    def of(self, user_id: int) -> Self:
        """Chats that a person may use: their own, neither deleted nor hidden."""
        return self.filter(owner_id=user_id, deleted_at=None, is_hidden=False)

    def listed(self, user_id: int) -> Self:
        """Chats in a person's sidebar, the most recent first; those never used are not."""
        return self.of(user_id).filter(begun_at__isnull=False).order_by("-active_at", "pk")


class Chat(models.Model):
    """A thread in the sidebar with a stable address; it survives ``/new``."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    key = models.CharField(max_length=200, unique=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="chats"
    )
    current = models.ForeignKey(
        "Session", on_delete=models.PROTECT, null=True, related_name="+", editable=False
    )
    endpoint = models.ForeignKey(
        "ModelEndpoint", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    title = models.CharField(max_length=200, blank=True, default="")
    is_named = models.BooleanField(default=False)  # a person gave the title: nothing replaces it
    draft = models.TextField(blank=True, default="")  # what /new gave back to the composer
    version = models.PositiveBigIntegerField(default=0)
    read_session = models.ForeignKey(
        "Session", on_delete=models.PROTECT, null=True, related_name="+", editable=False
    )
    read_seq = models.PositiveBigIntegerField(default=0)
    is_hidden = models.BooleanField(default=False)
    # The key of the session whose agent delegated this chat: opaque text, never rewritten.
    delegated_by = models.CharField(max_length=64, null=True, blank=True, editable=False)
    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    begun_at = models.DateTimeField(null=True, blank=True)  # null: nothing was ever sent to it
    active_at = models.DateTimeField(db_default=DbNow())  # a person wrote, or it was opened
    touched_at = models.DateTimeField(db_default=DbNow())  # its own columns changed; the poll reads
    created_at = models.DateTimeField(db_default=DbNow())
    branched_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, related_name="branches", editable=False
    )

    objects = ChatQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(
                "owner",
                F("active_at").desc(),
                "id",
                name="chat_owner_active",
                condition=Q(deleted_at=None, is_hidden=False),
            ),
            models.Index("deleted_at", name="chat_deleted", condition=Q(deleted_at__isnull=False)),
            models.Index("touched_at", name="chat_touched"),
            models.Index("id", name="chat_delegated", condition=Q(delegated_by__isnull=False)),
            models.Index("id", name="chat_hidden", condition=Q(is_hidden=True)),
        ]
        permissions = [("read_transcript", "Can read the text of other people's chats")]

    def __str__(self) -> str:
        return f"chat {self.pk}"


class SessionQuerySet(LockingQuerySet["Session"]):
    """Sessions."""

    def open(self) -> Self:
        """Sessions that have not ended."""
        return self.filter(ended_at=None)

    def lock_with_summary(self, pk: int) -> Session:
        """The session, locked, with its summary, which is not."""
        rows = self.select_related("summary").select_for_update(no_key=True, of=("self",))
        found = locked(rows, pk)
        if found.summary_id is not None and found.summary is None:
            # Who held the lock has changed it: PostgreSQL reads the locked row again, and joins it
            # with the summary that it had before.
            found.refresh_from_db(fields=["summary"])
        return found

    def lock_all(self, chat_id: int) -> list[Session]:
        """The sessions of a chat, by id, locked; called with the chat locked."""
        return list(self.filter(chat_id=chat_id).order_by("pk").select_for_update(no_key=True))


class Session(models.Model):
    """One context in a chat: an append-only transcript, and the numbers that describe it."""

    key = models.CharField(max_length=64, unique=True)
    chat = models.ForeignKey(Chat, on_delete=models.PROTECT, related_name="sessions")
    number = models.PositiveIntegerField()
    begun_by = models.CharField(max_length=8, choices=choices(domain.BegunBy), default="user")
    # The key of the session that goes on in this one (imported lineages): opaque text.
    continues = models.CharField(max_length=64, null=True, blank=True, editable=False)
    generation = models.PositiveBigIntegerField(default=0)
    version = models.PositiveBigIntegerField(default=0)
    last_seq = models.PositiveBigIntegerField(default=0)
    last_position = models.BigIntegerField(default=0)
    live_tokens = models.BigIntegerField(default=0)  # estimate, live messages above the summary
    live_count = models.BigIntegerField(default=0)  # the same rows, counted
    left_out = models.PositiveIntegerField(default=0)  # messages the last request had no room for
    summary = models.ForeignKey(
        "Summary", on_delete=models.PROTECT, null=True, related_name="+", editable=False
    )
    reading_tokens = models.PositiveIntegerField(
        null=True
    )  # prompt size as the provider counted it
    reading_seq = models.PositiveBigIntegerField(null=True)  # last message that was in that prompt
    reading_live = models.BigIntegerField(default=0)  # live_tokens when it was taken
    reading_summary = models.ForeignKey(
        "Summary", on_delete=models.SET_NULL, null=True, related_name="+", editable=False
    )
    touched_at = models.DateTimeField(db_default=DbNow())  # last change; the poll reads the newest
    created_at = models.DateTimeField(db_default=DbNow())
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(max_length=16, choices=choices(EndReason), null=True, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="session_one_open_per_chat", fields=["chat"], condition=Q(ended_at=None)
            ),
            models.UniqueConstraint(name="session_number_per_chat", fields=["chat", "number"]),
            models.CheckConstraint(
                name="session_ended_iff_reason",
                condition=Q(ended_at=None, end_reason=None)
                | Q(ended_at__isnull=False, end_reason__isnull=False),
            ),
            models.CheckConstraint(
                name="session_live_numbers_not_negative",
                condition=Q(live_tokens__gte=0, live_count__gte=0),
            ),
        ]
        indexes = [
            models.Index("touched_at", name="session_touched"),
        ]

    def __str__(self) -> str:
        return f"session {self.pk}"
