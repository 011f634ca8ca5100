"""Registering model endpoints from settings and commands; the admin uses the same rules."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from hermes.lib import vault
from sessions_app import domain
from sessions_app.models import History, ModelEndpoint, Session

OFFLINE = "Offline model"


def origin_of(base_url: str) -> str:
    """Scheme, host and port of an address: what a key is bound to."""
    parts = urlsplit(base_url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def set_key(endpoint: ModelEndpoint, api_key: str) -> None:
    """Seal a key into an endpoint, bound to its origin; an empty key removes it."""
    endpoint.sealed_key = vault.seal(api_key) if api_key else ""
    endpoint.key_hint = api_key[-4:] if len(api_key) >= 12 else ""
    endpoint.key_origin = origin_of(endpoint.base_url) if api_key else ""


@transaction.atomic
def register_endpoint(
    *, name: str, base_url: str, api_key: str, model: str, window: int, role: str, priority: int = 0
) -> ModelEndpoint:
    """Create an endpoint of this name or bring it to these values; return it."""
    endpoint = ModelEndpoint.objects.filter(name=name).first() or ModelEndpoint(name=name)
    endpoint.kind = domain.EndpointKind.OPENAI
    endpoint.base_url, endpoint.model = base_url, model
    endpoint.window, endpoint.role, endpoint.priority = window, role, priority
    set_key(endpoint, api_key)
    endpoint.is_enabled = True
    endpoint.save()
    return endpoint


@transaction.atomic
def seed_endpoints() -> list[str]:
    """Make the offline model and the endpoints that the environment names; return their names."""
    names = []
    for role in domain.EndpointRole:
        name = OFFLINE if role is domain.EndpointRole.CHAT else f"{OFFLINE} ({role})"
        ModelEndpoint.objects.get_or_create(
            name=name,
            defaults={"kind": domain.EndpointKind.OFFLINE, "role": role, "model": "offline"},
        )
        seed = settings.MODEL_SEEDS[role]
        if seed["base_url"]:
            register_endpoint(
                name=f"From settings ({role})",
                base_url=seed["base_url"],
                api_key=seed["api_key"],
                model=seed["name"],
                window=seed["window"],
                role=role,
                priority=10,
            )
            names.append(seed["name"])
    return names


@transaction.atomic
def reseal_keys() -> tuple[int, list[str]]:
    """Seal every endpoint's key anew under the first of ``HERMES_SECRET_KEYS``.

    Return how many were, and the names of the endpoints whose key none of the keys opens; those
    stay as they are.
    """
    moved, unopened = 0, []
    for endpoint in ModelEndpoint.objects.exclude(sealed_key="").select_for_update(no_key=True):
        try:
            endpoint.sealed_key = vault.reseal(endpoint.sealed_key)
        except vault.Unsealable:
            unopened.append(endpoint.name)
            continue
        endpoint.save(update_fields=["sealed_key"])
        moved += 1
    if moved:
        History(subject="endpoints", kind="reseal", to="resealed", data={"endpoints": moved}).save(
            force_insert=True
        )
    return moved, unopened


def record_reading(*, model: str, pk: str, actor: str) -> None:
    """Record that somebody has read a text that is not theirs."""
    History(subject=f"{model}:{pk}"[:40], kind="read", actor=actor[:150]).save(force_insert=True)


def record_operation(
    *,
    subject: str,
    what: str,
    actor: str,
    reason: str,
    session: Session | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Record what an operator did and why, in the transaction in which it was done."""
    History(
        chat=None if session is None else session.chat_id,
        session=None if session is None else session.pk,
        subject=subject[:40],
        kind="operator",
        to=what[:24],
        reason=reason[:200],
        actor=actor[:150],
        data=data or {},
    ).save(force_insert=True)
