"""What every response tells the browser about what it may do with it, and the person's zone."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from hermes.lib.zones import zone_of

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
# What watches a process asks it by the address of its machine or container, not by our name.
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class Headers(MiddlewareMixin):
    """Sets the policies of a response, also of one that says what went wrong."""

    def process_request(self, request: HttpRequest) -> None:
        """Times are told in the zone that the browser named; cookies that none could hold go.

        A probe counts as asked by our own name: nothing that it is told depends on it.
        """
        if request.path in PROBES:
            request.META["HTTP_HOST"] = settings.ALLOWED_HOSTS[0]
        for name in [name for name, value in request.COOKIES.items() if "\x00" in value]:
            del request.COOKIES[name]  # no database takes it, and none of ours has one
        zone = zone_of(request.COOKIES)
        if zone is not None:
            timezone.activate(zone)
        else:
            timezone.deactivate()

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Add what the response does not say itself."""
        timezone.deactivate()
        policy = ADMIN if _is_of_admin(request.path, response) else STRICT
        response.setdefault("Content-Security-Policy", policy.format(connect=_connect(request)))
        response.setdefault("Permissions-Policy", _PERMISSIONS)
        response.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if not request.path.startswith(settings.STATIC_URL):
            response.setdefault("Cache-Control", "no-store")
        return response


def _is_of_admin(path: str, response: HttpResponseBase) -> bool:
    """Whether the admin's own library makes the page; the desk's pages use none of it.

    At the address of the dashboard stands the plain index for whoever may not see the dashboard.
    """
    if path == "/admin/":
        return bool(getattr(response, "is_plain_index", False))
    return path.startswith("/admin/") and not path.startswith("/admin/desk/")


def _connect(request: HttpRequest) -> str:
    """Our own address; the socket is named too, for browsers to which 'self' is HTTP only."""
    host = request.META.get("HTTP_HOST", "")
    if not host or any(sign in host for sign in " ;,'\"\\"):
        return "'self'"
    return f"'self' {'wss' if request.is_secure() else 'ws'}://{host}"
