"""Where models answer."""

from __future__ import annotations

from typing import Self

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from hermes.lib.db import DbNow
from sessions_app import domain

from .base import choices


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
    window = models.PositiveIntegerField(
        default=128_000, validators=[MinValueValidator(1024), MaxValueValidator(100_000_000)]
    )
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
