"""What every response tells the browser about what it may do with it, and the person's zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src {connect}; manifest-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
)
# The admin's own script library evaluates expressions: a risk that is taken there only.
ADMIN: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src {connect}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "object-src 'none'"
)
_PERMISSIONS: Final = (
    "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
    "magnetometer=(), microphone=(), midi=(), payment=(), usb=()"
)
_ZONES: Final = available_timezones()


class Headers:
    """Sets the policies of a response, also of one that says what went wrong."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        zone = request.COOKIES.get("tz", "").replace("%2F", "/")
        with timezone.override(ZoneInfo(zone) if zone in _ZONES else None):
            response = self.get_response(request)
        policy = ADMIN if request.path.startswith("/admin/") else STRICT
        response.setdefault("Content-Security-Policy", policy.format(connect=_connect(request)))
        response.setdefault("Permissions-Policy", _PERMISSIONS)
        response.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if not request.path.startswith(settings.STATIC_URL):
            response.setdefault("Cache-Control", "no-store")
        return response


def _connect(request: HttpRequest) -> str:
    """Our own address; the socket is named too, for browsers to which 'self' is HTTP only."""
    host = request.META.get("HTTP_HOST", "")
    if not host or any(sign in host for sign in " ;,'\"\\"):
        return "'self'"
    return f"'self' {'wss' if request.is_secure() else 'ws'}://{host}"
