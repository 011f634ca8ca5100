"""Which model answers a chat, and the adapter that speaks to it."""

from __future__ import annotations

import threading
from typing import Final

from django.conf import settings

from hermes.lib import vault
from hermes.lib.chat import ChatModel, Limits
from hermes.lib.chat_offline import OfflineChatModel
from hermes.lib.chat_openai import OpenAIChatModel
from hermes.lib.redaction import live

from .domain import EndpointKind, EndpointRole
from .models import ModelEndpoint

KEPT: Final = 64  # adapters kept in a process: each holds a connection pool

_lock = threading.Lock()
_models: dict[tuple[object, ...], ChatModel] = {}


def model_for(chosen_id: int | None, role: EndpointRole = EndpointRole.CHAT) -> ChatModel:
    """The model of a chosen endpoint, else the preferred one of this role, else the offline one."""
    usable = ModelEndpoint.objects.usable(role)
    endpoint = usable.filter(pk=chosen_id).first() if chosen_id is not None else None
    return adapter(endpoint or usable.first())


def adapter(endpoint: ModelEndpoint | None) -> ChatModel:
    """The adapter of an endpoint, kept as long as nothing about the endpoint changes."""
    if endpoint is None or endpoint.kind == EndpointKind.OFFLINE:
        return OfflineChatModel(window=endpoint.window if endpoint is not None else 128_000)
    key = (
        endpoint.pk,
        endpoint.name,
        endpoint.base_url,
        endpoint.sealed_key,
        endpoint.model,
        endpoint.window,
    )
    with _lock:
        if key not in _models:
            while len(_models) >= KEPT:
                _models.pop(next(iter(_models)))
            api_key = vault.unseal(endpoint.sealed_key) if endpoint.sealed_key else ""
            if api_key:
                live.add(api_key)  # no log line shows it from here on
            _models[key] = OpenAIChatModel(
                name=endpoint.name,
                window=endpoint.window,
                base_url=endpoint.base_url,
                api_key=api_key,
                model=endpoint.model,
                limits=Limits(
                    connect=settings.HERMES_MODEL_CONNECT_SECONDS,
                    idle=settings.HERMES_MODEL_IDLE_SECONDS,
                    total=settings.HERMES_TURN_CEILING_SECONDS,
                ),
                allow_loopback=settings.HERMES_ALLOW_LOOPBACK_MODELS,
                allowed_hosts=settings.HERMES_MODEL_HOSTS,
            )
        return _models[key]
