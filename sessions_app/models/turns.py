"""Turns, and the text that they stream."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final, Self

from django.db import models
from django.db.models import F, Q

from hermes.lib.db import DbNow
from hermes.lib.leases import Leased, LeasedQuerySet, LeaseTimes
from sessions_app import domain
from sessions_app.domain import TurnStatus

from .base import BUSY_TURN, OPEN_TURN, choices
from .chats import Chat, Session

ENDED_BADLY: Final = sorted([TurnStatus.CANCELLED, TurnStatus.FAILED, TurnStatus.INTERRUPTED])


class TurnQuerySet(LeasedQuerySet["Turn"]):
    """Turns."""

    def queued(self) -> Self:
        """Queued turns in the order in which they run."""
        return self.filter(status=TurnStatus.QUEUED).order_by("rank", "position", "pk")

    def busy(self) -> Self:
        """Turns that run or wait: at most one a session."""
        return self.filter(status__in=BUSY_TURN)

    def underway(self) -> Self:
        """Busy turns, and queued ones that have begun or that answer what is there already.

        What they answer is in the context; nobody sees them among the messages that wait.
        """
        has_begun = Q(started_at__isnull=False) | Q(source__in=domain.WITHOUT_INPUT)
        return self.filter(Q(status__in=BUSY_TURN) | Q(status=TurnStatus.QUEUED) & has_begun)


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
            models.Index("session", "first_seq", name="turn_order"),
            models.Index("session", name="turn_open", condition=Q(status__in=OPEN_TURN)),
            models.Index(F("id").desc(), "status", name="turn_newest"),
            # For lists of what is rare: the most turns are in none of these.
            models.Index(
                "status", "id", name="turn_ended_badly", condition=Q(status__in=ENDED_BADLY)
            ),
            models.Index(
                "source",
                "id",
                name="turn_of_source",
                condition=~Q(source=domain.TurnSource.PERSON),
            ),
            models.Index("error_code", "id", name="turn_error", condition=~Q(error_code="")),
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
