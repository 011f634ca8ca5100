"""Which socket answers at which address."""

from __future__ import annotations

from typing import Final

from django.urls import re_path

from .consumers import ChatSocket

sockets: Final = [re_path(r"^ws/chats/(?P<uid>[^/]{1,64})/$", ChatSocket.as_asgi())]
