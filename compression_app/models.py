"""What can be true of attempts, cooldowns and the state that outlives them."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final, Self

from django.db import models
from django.db.models import Q

from hermes.lib.db import DbNow
from hermes.lib.leases import Leased, LeasedQuerySet, LeaseTimes
from sessions_app.models import Session

from . import domain
from .domain import AttemptStatus, CooldownKind, Trigger

OPEN: Final = sorted(domain.OPEN)
UNFINISHED: Final = sorted(domain.UNFINISHED)


class AttemptQuerySet(LeasedQuerySet["CompactionAttempt"]):
    """Attempts."""

    def open(self) -> Self:
        """Attempts that are queued or running: at most one a session."""
        return self.filter(status__in=OPEN)


class CompactionAttempt(Leased):
    """One try at folding the head of a transcript into a summary."""

    MOVES = domain.ATTEMPT_MOVES
    LEASE: ClassVar[LeaseTimes] = LeaseTimes(timedelta(seconds=30), timedelta(seconds=8))

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="compactions")
    status = models.CharField(
        max_length=12,
        choices=[(status.value, status.value) for status in AttemptStatus],
        default=AttemptStatus.QUEUED,
    )
    trigger = models.CharField(max_length=12, choices=[(t.value, t.value) for t in Trigger])
    focus = models.TextField(blank=True, default="")
    wants_preview = models.BooleanField(default=False)
    generation = models.PositiveBigIntegerField()
    watermark = models.PositiveBigIntegerField(null=True)  # null: unfenced, never commits
    cut = models.PositiveBigIntegerField()  # last row that goes in; lowered, never raised
    previous_id_seen = models.PositiveBigIntegerField(null=True)  # the summary it builds on
    mark = models.PositiveIntegerField(default=0)  # tokens at which it was opened
    endpoint_id_used = models.PositiveBigIntegerField(null=True)
    model_name = models.CharField(max_length=200, blank=True, default="")
    progress = models.PositiveIntegerField(default=0)  # deltas parsed so far
    progress_at = models.DateTimeField(null=True, blank=True)
    held_turn_id = models.PositiveBigIntegerField(null=True)
    hold_started_at = models.DateTimeField(null=True, blank=True)
    hold_released_at = models.DateTimeField(null=True, blank=True)  # set: deferred
    opened_at = models.DateTimeField(db_default=DbNow())
    claimed_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=24, blank=True, default="")
    detail = models.TextField(blank=True, default="")  # for operators
    text = models.TextField(blank=True, default="")  # a preview, or a summary that was rejected
    before_tokens = models.PositiveIntegerField(default=0)
    after_tokens = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    summary_id_made = models.PositiveBigIntegerField(null=True)
    actor = models.CharField(max_length=150, blank=True, default="")

    objects = AttemptQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="compaction_one_open_per_session",
                fields=["session"],
                condition=Q(status__in=OPEN),
            ),
            models.CheckConstraint(
                name="compaction_finished_iff_closed",
                condition=Q(status__in=UNFINISHED, finished_at=None)
                | (~Q(status__in=UNFINISHED) & Q(finished_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="compaction_leased_iff_running",
                condition=Q(status=AttemptStatus.RUNNING, lease_expires_at__isnull=False)
                | (~Q(status=AttemptStatus.RUNNING) & Q(lease_expires_at=None)),
            ),
            models.CheckConstraint(
                name="compaction_cut_at_most_watermark",
                condition=Q(watermark=None) | Q(cut__lte=models.F("watermark")),
            ),
            models.CheckConstraint(
                name="compaction_released_only_if_held",
                condition=Q(hold_released_at=None) | Q(hold_started_at__isnull=False),
            ),
            models.CheckConstraint(
                name="compaction_committed_has_summary",
                condition=~Q(status=AttemptStatus.COMMITTED) | Q(summary_id_made__isnull=False),
            ),
        ]
        indexes = [
            models.Index("session", models.F("id").desc(), name="attempt_of_session"),
            models.Index("opened_at", name="attempt_queued", condition=Q(status="queued")),
            models.Index("lease_expires_at", name="attempt_running", condition=Q(status="running")),
            models.Index("finished_at", "status", name="attempt_finished"),
            models.Index("opened_at", name="attempt_age"),
            models.Index(
                "status",
                "id",
                name="attempt_uncommitted",
                condition=~Q(status=AttemptStatus.COMMITTED),
            ),
            models.Index("trigger", "id", name="attempt_trigger"),
            models.Index("reason", "id", name="attempt_reason", condition=~Q(reason="")),
            models.Index("id", name="attempt_held", condition=Q(hold_started_at__isnull=False)),
            models.Index(
                "id", name="attempt_deferred", condition=Q(hold_released_at__isnull=False)
            ),
        ]
        permissions = [
            ("trigger_compaction", "Can have sessions summarised"),
            ("cancel_compaction", "Can cancel the summarising of sessions"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.pk}"


class CooldownQuerySet(models.QuerySet["Cooldown"]):
    """Cooldowns."""

    def active(self) -> Self:
        """Not cleared, and not over by the database's clock."""
        return self.filter(cleared_at=None, until__gt=DbNow())


class Cooldown(models.Model):
    """Until when automatic attempts of a session wait, and why: appended, at most cleared."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="cooldowns")
    attempt = models.ForeignKey(CompactionAttempt, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=8, choices=[(k.value, k.value) for k in CooldownKind])
    reason = models.CharField(max_length=80)
    until = models.DateTimeField()
    created_at = models.DateTimeField(db_default=DbNow())
    cleared_at = models.DateTimeField(null=True, blank=True)
    cleared_by = models.CharField(max_length=150, blank=True, default="")

    objects = CooldownQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="cooldown_one_per_attempt", fields=["attempt"]),
        ]
        indexes = [
            models.Index("session", "until", name="cooldown_active", condition=Q(cleared_at=None)),
            models.Index("until", name="cooldown_until", condition=Q(cleared_at=None)),
            models.Index("reason", "id", name="cooldown_reason"),
            models.Index("created_at", name="cooldown_age"),
        ]
        permissions = [("clear_cooldown", "Can clear cooldowns of compaction")]

    def __str__(self) -> str:
        return f"cooldown {self.pk}"


# States that say anything beside that there was an attempt.
NOTED: Final = (
    Q(streak__gt=0)
    | Q(ineffective__gt=0)
    | Q(grew__gt=0)
    | Q(breaker_until__isnull=False)
    | Q(paused_at__isnull=False)
)


class CompressionState(models.Model):
    """What outlives attempts: of a session, of a model endpoint, or of everything."""

    scope = models.CharField(max_length=40, unique=True)  # session:7, endpoint:3, everything
    session = models.OneToOneField(
        Session, on_delete=models.PROTECT, null=True, related_name="compression"
    )
    endpoint_id_meant = models.PositiveBigIntegerField(null=True)
    streak = models.PositiveIntegerField(default=0)  # failures in a row
    ineffective = models.PositiveIntegerField(default=0)  # commits in a row that did not help
    grew = models.PositiveIntegerField(default=0)  # summaries in a row larger than their source
    probe_at = models.DateTimeField(null=True, blank=True)  # when the breaker let one through
    awaited_mark = models.PositiveIntegerField(null=True)  # the next reading should be below it
    breaker_until = models.DateTimeField(null=True, blank=True)  # of a provider
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        indexes = [
            models.Index("streak", "id", name="state_streak"),
            models.Index("id", name="state_noted", condition=NOTED),
        ]
        permissions = [("pause_compaction", "Can pause and resume compaction")]

    def __str__(self) -> str:
        return self.scope
