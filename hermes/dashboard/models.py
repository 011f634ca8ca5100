"""What the desk keeps: rolled-up counts, signs of life, results of checks, alerts."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from hermes.lib.db import DbNow


class Rollup(models.Model):
    """How often something happened in a slot of time; every row can be made again from the facts.

    ``total`` adds up what was measured (tokens, milliseconds), where something was.
    """

    width = models.PositiveIntegerField()  # seconds: 300, 3,600 or 86,400
    at = models.DateTimeField()  # where the slot begins, on the grid of UTC
    figure = models.CharField(max_length=32)
    label = models.CharField(max_length=48)
    count = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="rollup_once_per_slot", fields=["width", "at", "figure", "label"]
            )
        ]
        permissions = [
            ("view_desk", "Can see the dashboard"),
            ("view_timeline", "Can see the timeline of a session"),
            ("export_timeline", "Can export the timeline of a session"),
        ]

    def __str__(self) -> str:
        return f"{self.figure}/{self.label} {self.at:%Y-%m-%d %H:%M}"


class RollupMark(models.Model):
    """How far the facts have been rolled up."""

    name = models.CharField(max_length=24, primary_key=True)
    through = models.DateTimeField()  # every slot before it is whole
    history_id = models.BigIntegerField(default=0)  # no row of the history below it is needed

    def __str__(self) -> str:
        return f"{self.name} through {self.through:%Y-%m-%d %H:%M}"


class Heartbeat(models.Model):
    """One process of the product, and when it last told that it lives."""

    owner = models.CharField(max_length=200, primary_key=True)  # hermes.lib.leases.Owner
    kind = models.CharField(max_length=16)  # web, worker, beat, supervisor
    host = models.CharField(max_length=100)
    queues = models.CharField(max_length=200, blank=True, default="")  # by comma; or a level
    version = models.CharField(max_length=40, blank=True, default="")
    began_at = models.DateTimeField(db_default=DbNow())
    seen_at = models.DateTimeField(db_default=DbNow())

    def __str__(self) -> str:
        return f"{self.kind} on {self.host}"


class CheckResult(models.Model):
    """What a check of all rows found when it last ran."""

    name = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField(db_default=DbNow())
    violations = models.PositiveIntegerField(default=0)
    detail = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return self.name


# --- Alerts ---------------------------------------------------------------------------------------


class AlertChannel(models.Model):
    """Where alerts are sent."""

    class Kind(models.TextChoices):
        """How a message gets there."""

        EMAIL = "email", "e-mail"
        WEBHOOK = "webhook", "webhook"

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.EMAIL)
    address = models.CharField(max_length=500)  # addresses by comma, or an https:// address
    sealed_key = models.TextField(blank=True, default="", editable=False)  # bearer of a webhook
    is_enabled = models.BooleanField(default=True)
    only_bad = models.BooleanField(default=False)  # nothing that merely warns
    created_at = models.DateTimeField(db_default=DbNow())

    def __str__(self) -> str:
        return self.name


class AlertQuerySet(models.QuerySet["Alert"]):
    """Alerts."""

    def open(self) -> Self:
        """Those whose condition holds, whether they have fired yet or not."""
        return self.filter(cleared_at=None)


class Alert(models.Model):
    """A rule whose condition holds, or held, for one subject: the row stays as history."""

    rule = models.CharField(max_length=40)
    subject = models.CharField(max_length=120, blank=True, default="")  # labels of the number
    level = models.CharField(max_length=4, default="warn")
    value = models.FloatField(default=0)  # the latest
    worst = models.FloatField(default=0)
    since = models.DateTimeField(db_default=DbNow())
    seen_at = models.DateTimeField(db_default=DbNow())
    is_firing = models.BooleanField(default=False)  # the condition has held for long enough
    told_at = models.DateTimeField(null=True, blank=True)  # the latest notice
    cleared_at = models.DateTimeField(null=True, blank=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="alert_one_open_per_subject",
                fields=["rule", "subject"],
                condition=Q(cleared_at=None),
            )
        ]
        indexes = [models.Index(fields=["rule", "subject", "told_at"], name="alert_told")]
        permissions = [("silence_alert", "Can silence alerts")]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}".strip()


class AlertNotice(models.Model):
    """One message of one alert to one channel: sent, or why not yet."""

    alert = models.ForeignKey(Alert, on_delete=models.PROTECT, related_name="notices")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="notices")
    what = models.CharField(max_length=8)  # fired, still, cleared
    created_at = models.DateTimeField(db_default=DbNow())
    due_at = models.DateTimeField(db_default=DbNow())
    tries = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    detail = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        indexes = [
            models.Index(
                "due_at",
                name="notice_due",
                condition=Q(sent_at=None, given_up_at=None),
            )
        ]

    def __str__(self) -> str:
        return f"{self.what}: {self.alert}"


class Silence(models.Model):
    """A rule that tells nobody for a while, and who wanted that."""

    rule = models.CharField(max_length=40)
    subject = models.CharField(max_length=120, blank=True, default="")  # empty: every one
    until = models.DateTimeField()
    reason = models.CharField(max_length=200)
    actor = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=DbNow())

    def __str__(self) -> str:
        return f"{self.rule} until {self.until:%Y-%m-%d %H:%M}"


# --- Logins ---------------------------------------------------------------------------------------


class LoginFailure(models.Model):
    """A password that was wrong: for a name, as a keyed hash, from an address."""

    name = models.CharField(max_length=32)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(db_default=DbNow())

    class Meta:
        indexes = [
            models.Index(fields=["address", "at"], name="login_failure_address"),
            models.Index(fields=["at"], name="login_failure_age"),
        ]
        permissions = [("unlock_login", "Can unlock logins")]

    def __str__(self) -> str:
        return f"login failure {self.pk}"


class SecondFactor(models.Model):
    """An authenticator app of a person: asked for at every login once it is confirmed."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor"
    )
    sealed_secret = models.TextField()
    last_step = models.BigIntegerField(default=0)  # of the latest code: each counts once
    recovery = models.JSONField(default=list)  # hashes of codes on paper, each for one login
    confirmed_at = models.DateTimeField(null=True, blank=True)  # null: being set up
    created_at = models.DateTimeField(db_default=DbNow())

    class Meta:
        permissions = [("forget_second_factor", "Can take second factors of people away")]

    def __str__(self) -> str:
        return f"second factor {self.pk}"
