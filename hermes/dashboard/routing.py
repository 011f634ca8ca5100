"""Which socket of the desk answers at which address."""

from __future__ import annotations

from typing import Final

from django.urls import re_path

from .consumers import DeskSocket

sockets: Final = [re_path(r"^ws/desk/$", DeskSocket.as_asgi())]
