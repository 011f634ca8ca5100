"""How long ago somebody has shown their password; and asking for it again."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

FRESH: Final = 15 * 60  # seconds
KEY: Final = "password_shown_at"


def mark(request: HttpRequest) -> None:
    """The password was shown right now."""
    request.session[KEY] = int(time.time())


def is_fresh(request: HttpRequest) -> bool:
    """Whether the password was shown within the last quarter of an hour."""
    shown = request.session.get(KEY, 0)
    return 0 <= time.time() - float(shown) < FRESH


def ask(request: HttpRequest, back: str = "") -> HttpResponseRedirect:
    """To the page that asks for the password, and from there back."""
    query = urlencode({"next": back or request.get_full_path()})
    return HttpResponseRedirect(f"{reverse('desk:confirm')}?{query}")
