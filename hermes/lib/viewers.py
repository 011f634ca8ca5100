"""Who is behind a socket: found once by the login that came with it, and asked for again.

For sockets, which no middleware sees after their handshake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from django.conf import settings
from django.contrib import auth
from django.db import connection
from django.utils.module_loading import import_string

from .db import retrying


@dataclass(frozen=True)
class Viewer:
    """A person behind a socket, and the login by which they came."""

    user_id: int
    name: str
    login: str
    stamp: str  # changes with the password


@retrying
def viewer_of(login: str) -> Viewer | None:
    """The person whom a login session names; None if nobody is signed in by it."""
    if not login or "\x00" in login:
        return None
    store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")(login)
    user = auth.get_user(SimpleNamespace(session=store))  # type: ignore[arg-type]
    if not user.is_authenticated or not user.is_active:
        return None
    return Viewer(user.pk, user.get_username(), login, _stamp(user.password))


def _stamp(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


_SIGNED_OUT: Final = """
SELECT w.n
FROM unnest(%s::bigint[], %s::text[], %s::text[]) WITH ORDINALITY AS w(person, login, stamp, n)
LEFT JOIN auth_user u ON u.id = w.person AND u.is_active
LEFT JOIN django_session l ON l.session_key = w.login AND l.expire_date > clock_timestamp()
WHERE u.id IS NULL OR l.session_key IS NULL
   OR encode(sha256(convert_to(u.password, 'UTF8')), 'hex') <> w.stamp
"""


@retrying
def signed_out(viewers: Sequence[Viewer]) -> list[Viewer]:
    """Those whose login has ended, or who may not sign in any more; one query for all."""
    if not viewers:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            _SIGNED_OUT,
            [
                [viewer.user_id for viewer in viewers],
                [viewer.login for viewer in viewers],
                [viewer.stamp for viewer in viewers],
            ],
        )
        return [viewers[n - 1] for (n,) in cursor.fetchall()]
