"""What can be true of processes, completions and approvals: columns, constraints, filters.

Where something belongs is copied as opaque text (``origin_chat``, ``origin_session``): no foreign
key, never nulled, never rewritten. With one, a deleted session would turn its news into news of
nobody, and that lands in the wrong conversation.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Final, Self

from django.db import models
from django.db.models import F, Q

from hermes.lib.db import DbNow, locked
from hermes.lib.transitions import MovedQuerySet

from . import domain
from .domain import ApprovalStatus, EventStatus, ProcessStatus

ACTIVE: Final = sorted(domain.ACTIVE)
UNSETTLED: Final = sorted(domain.UNSETTLED)
PLACED: Final = sorted([EventStatus.ACCEPTED, EventStatus.DELIVERED])


def _choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value.replace("_", " ")) for member in enum]


def new_uid() -> str:
    """A name for a process, short enough for a model to repeat."""
    return f"p{secrets.token_hex(5)}"


class ProcessQuerySet(MovedQuerySet["ProcessRecord"]):
    """Processes."""

    def active(self) -> Self:
        """Those that may have a child."""
        return self.filter(status__in=ACTIVE)

    def of_chat(self, address: str) -> Self:
        """Those that a chat started, the newest first."""
        return self.filter(origin_chat=address).order_by("-pk")

    def lock(self, pk: int) -> ProcessRecord:
        """The row, locked until the transaction ends and read after the lock was had."""
        return locked(self.select_for_update(no_key=True), pk)


class ProcessRecord(models.Model):
    """A command that somebody asked for, and the child that runs it: the row comes first."""

    MOVES = domain.PROCESS_MOVES

    uid = models.CharField(max_length=40, unique=True, default=new_uid, editable=False)
    status = models.CharField(
        max_length=12, choices=_choices(ProcessStatus), default=ProcessStatus.STARTING
    )
    reason = models.CharField(
        max_length=12, choices=_choices(domain.ProcessReason), blank=True, default=""
    )
    detail = models.CharField(max_length=300, blank=True, default="")  # for operators
    command = models.TextField()
    cwd = models.CharField(max_length=1000, blank=True, default="")  # below the workspace
    origin_chat = models.CharField(max_length=200, blank=True, default="")
    origin_session = models.CharField(max_length=64, null=True)  # null: from before stamps
    owner_id_meant = models.BigIntegerField(null=True)
    turn_id_meant = models.BigIntegerField(null=True)
    call_id = models.CharField(max_length=200, blank=True, default="")
    is_foreground = models.BooleanField(default=False)  # it belongs to its turn
    wants_pty = models.BooleanField(default=False)
    notify = models.BooleanField(default=True)
    next_check_at = models.DateTimeField(null=True, blank=True)  # the pending watcher
    limit_seconds = models.PositiveIntegerField(default=3600)
    host = models.CharField(max_length=200, blank=True, default="")  # whose supervisor has it
    boot_id = models.CharField(max_length=64, blank=True, default="")
    pid = models.BigIntegerField(null=True)
    pid_start = models.CharField(max_length=40, blank=True, default="")  # the kernel's own words
    sandbox = models.CharField(max_length=12, blank=True, default="")
    exit_code = models.IntegerField(null=True)
    signal_number = models.IntegerField(null=True)
    kill_asked_at = models.DateTimeField(null=True, blank=True)
    kill_by = models.CharField(
        max_length=12, choices=_choices(domain.KillBy), blank=True, default=""
    )
    kill_actor = models.CharField(max_length=150, blank=True, default="")
    kill_failed_at = models.DateTimeField(null=True, blank=True)  # something of it survived
    # The call of a tool that returned the result; it counts once its result stands in the turn.
    taken_turn_id = models.BigIntegerField(null=True)
    taken_call_id = models.CharField(max_length=200, blank=True, default="")
    output_bytes = models.PositiveBigIntegerField(default=0)
    tail = models.TextField(blank=True, default="")  # redacted, readable
    tail_at = models.DateTimeField(null=True, blank=True)
    imported = models.JSONField(default=dict, blank=True)  # foreign fields, as they came
    created_at = models.DateTimeField(db_default=DbNow())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ProcessQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="process_one_per_call",
                fields=["turn_id_meant", "call_id"],
                condition=Q(turn_id_meant__isnull=False),
            ),
            models.CheckConstraint(
                name="process_ended_iff_closed",
                condition=Q(status__in=ACTIVE, ended_at=None, reason="")
                | (~Q(status__in=ACTIVE) & Q(ended_at__isnull=False) & ~Q(reason="")),
            ),
            models.CheckConstraint(
                name="process_running_is_identified",
                condition=~Q(status=ProcessStatus.RUNNING)
                | (Q(pid__isnull=False, started_at__isnull=False) & ~Q(pid_start="")),
            ),
            models.CheckConstraint(
                name="process_killed_only_if_asked",
                condition=~Q(reason=domain.ProcessReason.KILLED) | Q(kill_asked_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index("host", "id", name="process_active", condition=Q(status__in=ACTIVE)),
            models.Index("origin_chat", F("id").desc(), name="process_of_chat"),
            models.Index("origin_session", "id", name="process_of_session"),
            models.Index("owner_id_meant", name="process_of_owner", condition=Q(status__in=ACTIVE)),
            models.Index(
                "status",
                "id",
                name="process_unended",
                condition=~Q(status=ProcessStatus.ENDED),
            ),
            models.Index(
                "reason",
                "id",
                name="process_reason",
                condition=~Q(reason__in=["", domain.ProcessReason.EXITED]),
            ),
        ]
        permissions = [
            ("start_process", "Can let the agent run commands"),
            ("kill_process", "Can end processes of other people"),
            ("read_log", "Can read the output of other people's processes"),
        ]

    def __str__(self) -> str:
        return f"process {self.uid}"

    @property
    def is_active(self) -> bool:
        """Whether it may have a child."""
        return self.status in domain.ACTIVE

    @property
    def killed_by(self) -> domain.KillBy | None:
        """For whom it was ended; None if it ended otherwise."""
        by_us = {domain.ProcessReason.KILLED, domain.ProcessReason.HANDED_BACK}
        return domain.KillBy(self.kill_by) if self.reason in by_us and self.kill_by else None

    @property
    def outcome(self) -> str:
        """How it stands or ended, in words."""
        return domain.outcome(
            ProcessStatus(self.status),
            domain.ProcessReason(self.reason) if self.reason else None,
            exit_code=self.exit_code,
            signal_number=self.signal_number,
            kill_by=domain.KillBy(self.kill_by) if self.kill_by else None,
            is_reported=self.sandbox == domain.UNCONFINED,
        )

    @property
    def seconds(self) -> float | None:
        """How long it ran, where that is known."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, (self.ended_at - self.started_at).total_seconds())


class ProcessInput(models.Model):
    """What is to be typed into a process with a terminal, in order."""

    process = models.ForeignKey(ProcessRecord, on_delete=models.CASCADE, related_name="inputs")
    call_id = models.CharField(max_length=200, blank=True, default="")
    text = models.TextField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="process_input_once_per_call",
                fields=["process", "call_id"],
                condition=~Q(call_id=""),
            )
        ]

    def __str__(self) -> str:
        return f"input {self.pk}"


class EventQuerySet(MovedQuerySet["CompletionEvent"]):
    """Completions."""

    def due(self) -> Self:
        """Pending events whose time has come, the oldest end first."""
        return self.filter(status=EventStatus.PENDING, due_at__lte=DbNow()).order_by(
            "happened_at", "pk"
        )


class CompletionEvent(models.Model):
    """The news that something has ended: written with the end, settled by ``verdicts`` alone."""

    MOVES = domain.EVENT_MOVES

    process = models.ForeignKey(
        ProcessRecord, on_delete=models.PROTECT, null=True, related_name="events"
    )
    child_session = models.CharField(max_length=64, null=True)  # of a delegated agent
    kind = models.CharField(max_length=32)  # no choices: what is not known is dropped by name
    seq = models.PositiveIntegerField(default=1)
    origin_chat = models.CharField(max_length=200, blank=True, default="")
    origin_session = models.CharField(max_length=64, null=True)
    status = models.CharField(
        max_length=12, choices=_choices(EventStatus), default=EventStatus.PENDING
    )
    reason = models.CharField(
        max_length=16, choices=_choices(domain.DropReason), blank=True, default=""
    )
    quiet_because = models.CharField(
        max_length=16, choices=_choices(domain.QuietReason), blank=True, default=""
    )
    held = models.CharField(max_length=8, choices=_choices(domain.Held), blank=True, default="")
    title = models.TextField(blank=True, default="")  # command or goal
    body = models.TextField(blank=True, default="")  # redacted and readable
    attempt = models.PositiveIntegerField(default=1)  # turns that it was, or is to be, part of
    turn_id_meant = models.BigIntegerField(null=True)
    delivered_to = models.CharField(max_length=64, blank=True, default="")  # session key
    happened_at = models.DateTimeField()
    due_at = models.DateTimeField(db_default=DbNow())
    waits_since = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    actor = models.CharField(max_length=150, blank=True, default="")
    created_at = models.DateTimeField(db_default=DbNow())

    objects = EventQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="completion_once_per_process", fields=["process", "kind", "seq"]
            ),
            models.UniqueConstraint(
                name="completion_once_per_child", fields=["child_session", "kind"]
            ),
            models.CheckConstraint(
                name="completion_is_of_process_or_child",
                condition=Q(process__isnull=False, child_session=None)
                | Q(process=None, child_session__isnull=False),
            ),
            models.CheckConstraint(
                name="completion_dropped_iff_reason",
                condition=(Q(status=EventStatus.DROPPED) & ~Q(reason=""))
                | (~Q(status=EventStatus.DROPPED) & Q(reason="")),
            ),
            models.CheckConstraint(
                name="completion_quiet_iff_because",
                condition=(Q(status=EventStatus.QUIET) & ~Q(quiet_because=""))
                | (~Q(status=EventStatus.QUIET) & Q(quiet_because="")),
            ),
            models.CheckConstraint(
                name="completion_has_turn_iff_placed",
                condition=Q(status__in=PLACED, turn_id_meant__isnull=False)
                | (~Q(status__in=PLACED) & Q(turn_id_meant=None)),
            ),
            models.CheckConstraint(
                name="completion_settled_iff_not_open",
                condition=Q(status__in=UNSETTLED, settled_at=None)
                | (~Q(status__in=UNSETTLED) & Q(settled_at__isnull=False)),
            ),
        ]
        indexes = [
            models.Index("due_at", name="completion_due", condition=Q(status=EventStatus.PENDING)),
            models.Index(
                "origin_chat",
                "happened_at",
                name="completion_open",
                condition=Q(status__in=UNSETTLED),
            ),
            models.Index("turn_id_meant", name="completion_of_turn"),
            models.Index("origin_session", "status", name="completion_of_session"),
            models.Index("status", "reason", F("settled_at").desc(), name="completion_by_reason"),
            models.Index("reason", "id", name="completion_reason", condition=~Q(reason="")),
            models.Index(
                "quiet_because", "id", name="completion_quiet", condition=~Q(quiet_because="")
            ),
        ]
        permissions = [
            ("redeliver_completion", "Can have dropped completions judged again"),
            ("show_completion", "Can show completions quietly"),
            ("discard_completion", "Can discard completions"),
        ]

    def __str__(self) -> str:
        return f"completion {self.pk}"


class Approval(models.Model):
    """A command that somebody has to agree to. Open iff pending and its turn waits for it."""

    MOVES = domain.APPROVAL_MOVES

    status = models.CharField(
        max_length=8, choices=_choices(ApprovalStatus), default=ApprovalStatus.PENDING
    )
    answer = models.CharField(max_length=8, choices=_choices(domain.Answer), blank=True, default="")
    turn_id_meant = models.BigIntegerField()
    call_id = models.CharField(max_length=200)
    origin_chat = models.CharField(max_length=200)
    origin_session = models.CharField(max_length=64)
    owner_id_meant = models.BigIntegerField()
    command = models.TextField()
    cwd = models.CharField(max_length=1000, blank=True, default="")
    script_hash = models.CharField(max_length=64, blank=True, default="")
    is_steered = models.BooleanField(default=False)  # untrusted text led to it: no Always
    until = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)
    actor = models.CharField(max_length=150, blank=True, default="")
    revoked_at = models.DateTimeField(null=True, blank=True)  # of an Always
    created_at = models.DateTimeField(db_default=DbNow())

    objects = MovedQuerySet["Approval"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="approval_once_per_call", fields=["turn_id_meant", "call_id"]
            ),
            models.CheckConstraint(
                name="approval_answered_iff_not_pending",
                condition=Q(status=ApprovalStatus.PENDING, answered_at=None, answer="")
                | (~Q(status=ApprovalStatus.PENDING) & Q(answered_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="approval_always_only_if_not_steered",
                condition=~Q(answer=domain.Answer.ALWAYS) | Q(is_steered=False),
            ),
        ]
        indexes = [
            models.Index("origin_chat", name="approval_always", condition=Q(answer="always")),
            models.Index("origin_chat", "id", name="approval_of_chat"),
            models.Index("origin_session", "id", name="approval_of_session"),
            models.Index("until", name="approval_pending", condition=Q(status="pending")),
        ]
        permissions = [("revoke_approval", "Can take back what other people always allow")]

    def __str__(self) -> str:
        return f"approval {self.pk}"
