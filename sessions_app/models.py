"""What can be true of chats, sessions, turns and messages: columns, constraints, named filters."""

from __future__ import annotations

import uuid
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Final, Self, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from hermes.lib.db import DbNow
from hermes.lib.leases import Leased, LeasedQuerySet, LeaseTimes

from . import domain
from .domain import EndReason, TurnStatus

OPEN_TURN: Final = sorted(domain.OPEN_TURN)
BUSY_TURN: Final = sorted(domain.BUSY_TURN)


def choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    """An enum as Django wants it."""
    return [(member.value, member.value.replace("_", " ")) for member in enum]


M = TypeVar("M", bound=models.Model)


class LockingQuerySet(models.QuerySet[M]):
    """Rows that are locked one statement at a time (architecture: lock order)."""

    def lock(self, pk: int) -> M:
        """The row, locked until the transaction ends and read after the lock was had."""
        return self.select_for_update(no_key=True).get(pk=pk)


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
        ]
        permissions = [("read_transcript", "Can read the text of other people's chats")]

    def __str__(self) -> str:
        return f"chat {self.pk}"


class SessionQuerySet(LockingQuerySet["Session"]):
    """Sessions."""

    def open(self) -> Self:
        """Sessions that have not ended."""
        return self.filter(ended_at=None)

    def lock_all(self, chat_id: int) -> list[Session]:
        """The sessions of a chat, by id, locked; called with the chat locked."""
        return list(self.filter(chat_id=chat_id).order_by("pk").select_for_update(no_key=True))


class Session(models.Model):
    """One context in a chat: an append-only transcript, and the numbers that describe it."""

    key = models.CharField(max_length=64, unique=True)
    chat = models.ForeignKey(Chat, on_delete=models.PROTECT, related_name="sessions")
    number = models.PositiveIntegerField()
    begun_by = models.CharField(max_length=8, choices=choices(domain.BegunBy), default="user")
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


class TurnQuerySet(LeasedQuerySet["Turn"]):
    """Turns."""

    def queued(self) -> Self:
        """Queued turns in the order in which they run."""
        return self.filter(status=TurnStatus.QUEUED).order_by("rank", "position", "pk")

    def busy(self) -> Self:
        """Turns that run or wait: at most one a session."""
        return self.filter(status__in=BUSY_TURN)


class Turn(Leased):
    """One unit of the conversation: an input, and the agent's work on it.

    It carries its input and becomes a message only when it starts; ``fence_token`` is its run.
    """

    MOVES = domain.TURN_MOVES
    LEASE: ClassVar[LeaseTimes] = LeaseTimes(timedelta(seconds=20), timedelta(seconds=5))

    chat = models.ForeignKey(Chat, on_delete=models.PROTECT, related_name="turns")
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="turns")
    status = models.CharField(max_length=12, choices=choices(TurnStatus), default=TurnStatus.QUEUED)
    source = models.CharField(
        max_length=12, choices=choices(domain.TurnSource), default=domain.TurnSource.PERSON
    )
    client_turn_id = models.CharField(max_length=64, null=True, blank=True)
    text = models.TextField(blank=True, default="")
    text_hash = models.CharField(max_length=64, blank=True, default="")  # of the text first sent
    rank = models.PositiveSmallIntegerField(default=domain.RANK_PERSON)
    position = models.BigIntegerField()
    first_seq = models.PositiveBigIntegerField(null=True)  # its first row; null: not started
    put_back = models.PositiveSmallIntegerField(default=0)
    wait_key = models.CharField(max_length=200, blank=True, default="")
    wait_until = models.DateTimeField(null=True, blank=True)
    error_code = models.CharField(max_length=32, blank=True, default="")
    error_text = models.TextField(blank=True, default="")
    retry_at = models.DateTimeField(null=True, blank=True)
    model_name = models.CharField(max_length=200, blank=True, default="")
    model_calls = models.PositiveIntegerField(default=0)
    provider_waits = models.PositiveSmallIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)  # as the provider counts, all calls
    completion_tokens = models.PositiveBigIntegerField(default=0)
    length = models.PositiveBigIntegerField(default=0)  # code points of assistant text committed
    open_calls = models.PositiveSmallIntegerField(default=0)  # tool calls without a result row
    built_on = models.ForeignKey(
        "Summary", on_delete=models.SET_NULL, null=True, related_name="+", editable=False
    )
    changed = models.PositiveBigIntegerField(default=0)  # session version of its last change
    created_at = models.DateTimeField(db_default=DbNow())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = TurnQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="turn_one_busy_per_session",
                fields=["session"],
                condition=Q(status__in=BUSY_TURN),
            ),
            models.UniqueConstraint(
                name="turn_client_id_per_chat", fields=["chat", "client_turn_id"]
            ),
            models.CheckConstraint(
                name="turn_finished_iff_closed",
                condition=Q(status__in=OPEN_TURN, finished_at=None)
                | (~Q(status__in=OPEN_TURN) & Q(finished_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="turn_leased_iff_running",
                condition=Q(status=TurnStatus.RUNNING, lease_expires_at__isnull=False)
                | (~Q(status=TurnStatus.RUNNING) & Q(lease_expires_at=None)),
            ),
            models.CheckConstraint(
                name="turn_waits_for_something",
                condition=~Q(status=TurnStatus.WAITING) | ~Q(wait_key=""),
            ),
        ]
        indexes = [
            models.Index(
                "session", "rank", "position", name="turn_queue", condition=Q(status="queued")
            ),
            models.Index("created_at", name="turn_queued_age", condition=Q(status="queued")),
            models.Index("lease_expires_at", name="turn_running", condition=Q(status="running")),
            models.Index("wait_until", name="turn_waiting", condition=Q(status="waiting")),
            models.Index("session", "changed", name="turn_changes"),
            models.Index(F("id").desc(), "status", name="turn_newest"),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"


class TurnChunk(models.Model):
    """A piece of the text that a run has streamed and no message holds yet."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="chunks")
    run = models.PositiveBigIntegerField()
    n = models.PositiveIntegerField()
    offset = models.PositiveBigIntegerField()  # code points
    text = models.TextField()
    created_at = models.DateTimeField(db_default=DbNow())

    class Meta:
        constraints = [
            models.UniqueConstraint(name="chunk_order_per_run", fields=["turn", "run", "n"])
        ]
        indexes = [models.Index("created_at", name="chunk_age")]

    def __str__(self) -> str:
        return f"chunk {self.turn_id}/{self.run}/{self.n}"


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
    text = models.TextField()
    tokens = models.PositiveIntegerField(default=0)
    attempt_id = models.PositiveBigIntegerField(null=True)
    created_at = models.DateTimeField(db_default=DbNow())
    reverted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "summaries"

    def __str__(self) -> str:
        return f"summary {self.pk}"


class ModelEndpointQuerySet(models.QuerySet["ModelEndpoint"]):
    """Endpoints."""

    def usable(self, role: str) -> Self:
        """Enabled endpoints of a role, the preferred one first, the offline model last."""
        return self.filter(role=role, is_enabled=True).order_by(
            models.Case(models.When(kind=domain.EndpointKind.OFFLINE, then=1), default=0),
            "-priority",
            "pk",
        )


class ModelEndpoint(models.Model):
    """Where a model answers; the offline model is one too."""

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(
        max_length=12, choices=choices(domain.EndpointKind), default=domain.EndpointKind.OPENAI
    )
    role = models.CharField(
        max_length=12, choices=choices(domain.EndpointRole), default=domain.EndpointRole.CHAT
    )
    base_url = models.CharField(max_length=500, blank=True, default="")
    model = models.CharField(max_length=200, blank=True, default="")
    window = models.PositiveIntegerField(default=128_000)
    sealed_key = models.TextField(blank=True, default="", editable=False)
    key_origin = models.CharField(max_length=300, blank=True, default="", editable=False)
    key_hint = models.CharField(max_length=8, blank=True, default="", editable=False)
    priority = models.IntegerField(default=0)
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=DbNow())

    objects = ModelEndpointQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(name="endpoint_window_is_usable", condition=Q(window__gte=1024))
        ]

    def __str__(self) -> str:
        return self.name


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


class History(models.Model):
    """What happened, appended by every single writer in the transaction of the fact itself."""

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
            models.Index("subject", "id", name="history_subject"),
            models.Index("kind", "id", name="history_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.kind} {self.frm}→{self.to}"


class Periodic(models.Model):
    """Periodic work: when it last ran, and until when it may be running."""

    name = models.CharField(max_length=40, primary_key=True)
    last_run_at = models.DateTimeField()
    busy_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name
