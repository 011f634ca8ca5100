"""Messages, what was rewound, and what summaries stand for."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import F, Q

from hermes.lib.db import DbNow
from sessions_app import domain

from .base import choices
from .chats import Session
from .turns import Turn


class MessageQuerySet(models.QuerySet["Message"]):
    """Messages."""

    def live(self) -> Self:
        """Messages that no open rewind covers."""
        covering = Rewind.objects.filter(
            session=models.OuterRef("session"),
            undone_at=None,
            from_seq__lte=models.OuterRef("seq"),
            to_seq__gte=models.OuterRef("seq"),
        )
        return self.filter(~models.Exists(covering))


class Message(models.Model):
    """One row of a transcript: appended once, never rewritten or deleted."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="messages")
    turn = models.ForeignKey(Turn, on_delete=models.PROTECT, null=True, related_name="messages")
    seq = models.PositiveBigIntegerField()
    role = models.CharField(max_length=12, choices=choices(domain.MessageRole))
    kind = models.CharField(
        max_length=12, choices=choices(domain.MessageKind), default=domain.MessageKind.TEXT
    )
    text = models.TextField(blank=True, default="")
    parts = models.JSONField(
        default=dict, blank=True
    )  # calls, reasoning; of a result: call, name, ok
    tokens = models.PositiveIntegerField(default=0)  # estimate
    is_partial = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=DbNow())

    objects = MessageQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="message_seq_per_session", fields=["session", "seq"]),
            models.CheckConstraint(
                name="message_says_something", condition=~Q(text="") | ~Q(parts={})
            ),
        ]
        indexes = [  # for lists of what is rarer than what people and models say
            models.Index("id", name="message_of_tool", condition=Q(role=domain.MessageRole.TOOL)),
            models.Index(
                "kind",
                "id",
                name="message_of_kind",
                condition=~Q(kind=domain.MessageKind.TEXT),
            ),
            models.Index("id", name="message_partial", condition=Q(is_partial=True)),
        ]

    def __str__(self) -> str:
        return f"message {self.session_id}/{self.seq}"


class Rewind(models.Model):
    """A closed range of rows that is out of the context until ``undone_at``.

    Ranges of one ``group`` stepped out together and come back together. Open ranges never overlap.
    """

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="rewinds")
    group = models.PositiveBigIntegerField()  # the key of the group's first range
    after_seq = models.PositiveBigIntegerField()  # the live row before it, 0 for none
    from_seq = models.PositiveBigIntegerField()
    to_seq = models.PositiveBigIntegerField()
    reason = models.CharField(max_length=12, choices=choices(domain.RewindReason))
    undone_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=DbNow())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="rewind_range_in_order", condition=Q(from_seq__lte=F("to_seq"))
            )
        ]
        indexes = [
            models.Index(
                "session", "from_seq", "to_seq", name="rewind_open", condition=Q(undone_at=None)
            ),
            models.Index("group", name="rewind_group"),
        ]

    def __str__(self) -> str:
        return f"rewind {self.session_id}/{self.from_seq}-{self.to_seq}"


class Summary(models.Model):
    """A checkpoint: what stands for every message up to ``covers_through``."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="summaries")
    previous = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")
    covers_through = models.PositiveBigIntegerField()
    text = models.TextField()  # as the model is given it
    body = models.TextField(blank=True, default="")  # the part that a model or a person wrote
    parts = models.JSONField(default=dict, blank=True)  # the parts made from rows, for the next one
    tokens = models.PositiveIntegerField(default=0)  # estimate of ``text``
    messages = models.PositiveIntegerField(default=0)  # rows that it newly stands for
    before_tokens = models.PositiveIntegerField(default=0)  # the context before it …
    after_tokens = models.PositiveIntegerField(default=0)  # … and with it, estimated
    is_untrusted = models.BooleanField(default=False)  # its source held text of tools or machines
    is_mechanical = models.BooleanField(default=False)  # no model wrote any of it
    attempt_id = models.PositiveBigIntegerField(null=True)
    created_at = models.DateTimeField(db_default=DbNow())
    reverted_at = models.DateTimeField(null=True, blank=True)
    reverted_tokens = models.BigIntegerField(null=True)  # live tokens right after it was undone

    class Meta:
        verbose_name_plural = "summaries"
        permissions = [("undo_summary", "Can undo summaries of other people's chats")]
        indexes = [
            models.Index("session", "covers_through", name="summary_line"),
            models.Index("created_at", name="summary_age"),
            models.Index("id", name="summary_undone", condition=Q(reverted_at__isnull=False)),
            models.Index("id", name="summary_untrusted", condition=Q(is_untrusted=True)),
            models.Index("id", name="summary_mechanical", condition=Q(is_mechanical=True)),
        ]

    def __str__(self) -> str:
        return f"summary {self.pk}"
