"""Who may try a password, and how often: five times in five minutes a name and address.

A lock is of one name from one address: nobody can lock somebody out from elsewhere. Names are kept
as keyed hashes, since people type passwords into the wrong field. A try that is refused takes as
long as one that is not.
"""

from __future__ import annotations

import hmac
import logging
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db.models import Max
from django.http import HttpRequest

from hermes.lib import reauth
from hermes.lib.db import DbNow, db_now

from .models import LoginFailure

logger = logging.getLogger(__name__)

WINDOW: Final = timedelta(minutes=5)
EACH: Final = 5  # tries in it, of one name from one address
ADDRESS: Final = 50  # of all names from one address
EVERYWHERE: Final = 10  # of one code, from all addresses together
KEPT: Final = timedelta(days=1)
STAFF_SECONDS: Final = 8 * 3600  # for which a login of staff lasts


def _hashed(name: str) -> str:
    told = name.strip().casefold().encode()[:500]
    return hmac.new(settings.SECRET_KEY.encode(), told, sha256).hexdigest()[:32]


def _address(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))[:64]


def wait(request: HttpRequest, name: str) -> int:
    """Seconds until this name may be tried again from there; 0 if it may now."""
    recent = LoginFailure.objects.filter(address=_address(request), at__gt=DbNow() - WINDOW)
    mine = recent.filter(name=_hashed(name))
    newest = None
    for rows, limit in ((mine, EACH), (recent, ADDRESS)):
        if rows.count() >= limit:
            newest = rows.aggregate(at=Max("at"))["at"]
            break
    if newest is None:
        return 0
    return max(1, int((newest + WINDOW - db_now()).total_seconds()))


def is_worn(name: str) -> bool:
    """Whether this name was tried too often lately, from all addresses together.

    It is asked of codes only: who tries one has shown the password, so that no stranger locks
    somebody out, and who knows the password and has many addresses guesses no code.
    """
    recent = LoginFailure.objects.filter(name=_hashed(name), at__gt=DbNow() - WINDOW)
    return recent.count() >= EVERYWHERE


def note_failure(request: HttpRequest, name: str) -> None:
    """Remember a wrong password."""
    LoginFailure.objects.create(name=_hashed(name), address=_address(request))
    logger.warning("login failed", extra={"address": _address(request)})


def forget(request: HttpRequest, name: str) -> None:
    """The right password was shown: earlier tries of this name from there do not count."""
    LoginFailure.objects.filter(name=_hashed(name), address=_address(request)).delete()


def forget_old() -> int:
    """Forget what no limit looks at any more; how much."""
    return LoginFailure.objects.filter(at__lt=DbNow() - KEPT).delete()[0]


class GuardedBackend(ModelBackend):
    """Passwords, tried only so often."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **more: Any,
    ) -> Any:
        """The person, or None; nobody at all while the name is locked there."""
        if request is None or username is None or password is None:
            return super().authenticate(request, username, password, **more)
        if wait(request, username):
            get_user_model()().set_password(password)  # as long as a try takes
            raise PermissionDenied
        return super().authenticate(request, username, password, **more)


# --- Signals of Django ----------------------------------------------------------------------------


def on_failure(
    sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any
) -> None:
    """Count a failed try; one that was refused without a look makes the lock no longer."""
    name = str(credentials.get("username", ""))
    if request is not None and not wait(request, name):
        note_failure(request, name)


def on_login(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    """A login begins with a password that was shown, and for staff it ends the same day."""
    if request is None or not hasattr(request, "session"):
        return
    reauth.mark(request)
    if user.is_staff:
        request.session.set_expiry(STAFF_SECONDS)
    if request.META.get("REMOTE_ADDR"):
        forget(request, user.get_username())
