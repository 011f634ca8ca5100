"""Which socket answers at which address, and for whom."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.urls import re_path

from .consumers import ChatSocket, no_such_place


class FullOrigins(OriginValidator):  # type: ignore[misc]  # channels has no types
    """Scheme, host and port of ``Origin`` have to be one of ours; what cannot be read is not."""

    def valid_origin(self, parsed_origin: Any) -> bool:
        """Whether the origin is one of ours."""
        try:
            return bool(super().valid_origin(parsed_origin))
        except ValueError:  # a port that is no number
            return False


# The socket itself looks up who came: once, in the bounded pool, and again at every command.
sockets = FullOrigins(
    CookieMiddleware(
        URLRouter(
            [
                re_path(r"^ws/chats/(?P<uid>[^/]{1,64})/$", ChatSocket.as_asgi()),
                re_path(r"", no_such_place),  # type: ignore[arg-type]
            ]
        )
    ),
    settings.HERMES_ORIGINS,
)
