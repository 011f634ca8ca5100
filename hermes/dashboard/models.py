"""What the desk keeps: rolled-up counts, signs of life, results of checks, alerts."""

from __future__ import annotations

from django.db import models

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
    kind = models.CharField(max_length=16)  # web, worker, beat
    host = models.CharField(max_length=100)
    queues = models.CharField(max_length=200, blank=True, default="")  # of a worker, by comma
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
