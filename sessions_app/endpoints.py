"""Which model answers a chat, and the adapter that speaks to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from django.conf import settings

from hermes.lib import vault
from hermes.lib.chat import ChatModel, Limits
from hermes.lib.chat_offline import OfflineChatModel
from hermes.lib.redaction import live

from .domain import EndpointKind, EndpointRole
from .models import ModelEndpoint

if TYPE_CHECKING:
    from hermes.lib.chat_openai import OpenAIChatModel

OFFLINE_WINDOW: Final = 128_000
KEPT: Final = 64  # adapters kept in a process: each holds a connection pool

_lock = threading.Lock()
_models: dict[tuple[object, ...], ChatModel] = {}


class Ratios:
    """What models count for each token that we estimate, learned from what they report."""

    WEIGHT: Final = 0.3  # of the newest report
    LEAST, MOST = 0.5, 4.0

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def of(self, model: ChatModel) -> float:
        """The ratio learned for a model in this process; 1 before the first report."""
        return self._ratios.get(model.name, 1.0)

    def learn(self, model: ChatModel, *, estimated: int, counted: int) -> None:
        """Take a report of a model; tiny requests say little and are left out."""
        if estimated < 200 or counted <= 0:
            return
        seen = min(max(counted / estimated, self.LEAST), self.MOST)
        old = self._ratios.get(model.name, seen)
        self._ratios[model.name] = old + self.WEIGHT * (seen - old)


ratios: Final = Ratios()


def endpoint_for(
    chosen_id: int | None, role: EndpointRole = EndpointRole.CHAT
) -> ModelEndpoint | None:
    """A chosen endpoint if it is usable, else the preferred one of this role; None: offline."""
    usable = ModelEndpoint.objects.usable(role)
    chosen = usable.filter(pk=chosen_id).first() if chosen_id is not None else None
    return chosen or usable.first()


def summary_endpoint(chosen_id: int | None) -> ModelEndpoint | None:
    """Who writes summaries: a summary endpoint, else the chat's own model, else None: offline."""
    real = ModelEndpoint.objects.usable(EndpointRole.SUMMARY).filter(kind=EndpointKind.OPENAI)
    found = real.first() or endpoint_for(chosen_id)
    return None if found is None or found.kind == EndpointKind.OFFLINE else found


def load() -> type[OpenAIChatModel]:
    """The adapter's class. Its SDK is a third of a process's start, and few processes need it."""
    from hermes.lib.chat_openai import OpenAIChatModel

    return OpenAIChatModel


def window_for(chosen_id: int | None) -> int:
    """The window of the model that answers a chat, in its own tokens."""
    endpoint = endpoint_for(chosen_id)
    return OFFLINE_WINDOW if endpoint is None else endpoint.window


def model_for(chosen_id: int | None, role: EndpointRole = EndpointRole.CHAT) -> ChatModel:
    """The model of a chosen endpoint, else the preferred one of this role, else the offline one."""
    return adapter(endpoint_for(chosen_id, role))


def adapter(endpoint: ModelEndpoint | None, *, idle: float | None = None) -> ChatModel:
    """The adapter of an endpoint, kept as long as nothing about the endpoint changes.

    ``idle`` is for how many seconds a stream may be silent, where that differs from the setting.
    """
    idle = settings.HERMES_MODEL_IDLE_SECONDS if idle is None else idle
    if endpoint is None or endpoint.kind == EndpointKind.OFFLINE:
        return OfflineChatModel(window=endpoint.window if endpoint is not None else OFFLINE_WINDOW)
    key = (
        endpoint.pk,
        endpoint.name,
        endpoint.base_url,
        endpoint.sealed_key,
        endpoint.model,
        endpoint.window,
        idle,
    )
    model = load()  # before the lock: it takes a while, once
    with _lock:
        if key not in _models:
            while len(_models) >= KEPT:
                _models.pop(next(iter(_models)))
            api_key = vault.unseal(endpoint.sealed_key) if endpoint.sealed_key else ""
            if api_key:
                live.add(api_key)  # no log line shows it from here on
            _models[key] = model(
                name=endpoint.name,
                window=endpoint.window,
                base_url=endpoint.base_url,
                api_key=api_key,
                model=endpoint.model,
                limits=Limits(
                    connect=settings.HERMES_MODEL_CONNECT_SECONDS,
                    idle=idle,
                    total=settings.HERMES_TURN_CEILING_SECONDS,
                ),
                allow_loopback=settings.HERMES_ALLOW_LOOPBACK_MODELS,
                allowed_hosts=settings.HERMES_MODEL_HOSTS,
            )
        return _models[key]
