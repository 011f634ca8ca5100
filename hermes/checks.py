"""System checks: what would make an installation unsafe or fail late is said at start."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.utils import Error as DatabaseError

from . import env

# Below these: message sizes without limit (daphne), known holes (Django). Above: idle sockets of
# the core layer die after 5 s (redis).
FLOORS: Final = {"Django": (5, 2, 14), "daphne": (4, 2, 2)}
CEILINGS: Final = {"redis": (8,)}
SHIPPED: Final = re.compile(
    r"^(secret|password|change.?me.*|django-insecure-.*|test|example)$", re.I
)
PUBLIC: Final = {"0.0.0.0", "::", "[::]", "*", ""}  # noqa: S104 - compared, not bound
LOWEST_SERVER: Final = 140_000  # PostgreSQL's own notation
SPARE_CONNECTIONS: Final = 10


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@register(Tags.compatibility)
def versions(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Libraries whose other versions are known to break Hermes."""
    for name, limit in {**FLOORS, **CEILINGS}.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        shown = ".".join(map(str, limit))
        if name in FLOORS and _numbers(installed) < limit:
            yield Error(
                f"{name} {installed} is installed; {shown} or later is needed.", id="hermes.E001"
            )
        if name in CEILINGS and _numbers(installed) >= limit:
            yield Error(
                f"{name} {installed} is installed; it must be below {shown}.", id="hermes.E002"
            )


@register(Tags.security)
def doors(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Who may reach us: no wildcard, no debug pages in public, no secret that others know."""
    if any("*" in host or host.startswith(".") for host in settings.ALLOWED_HOSTS):
        yield Error("ALLOWED_HOSTS must name hosts; a wildcard is refused.", id="hermes.E010")
    if any("*" in origin for origin in settings.CSRF_TRUSTED_ORIGINS):
        yield Error("HERMES_ORIGINS must name origins; a wildcard is refused.", id="hermes.E011")
    public = settings.BIND in PUBLIC or settings.BEHIND_TLS
    if settings.DEBUG and public:
        yield Error("HERMES_DEBUG must be off where others can reach Hermes.", id="hermes.E012")
    if settings.HERMES_SANDBOX == "none" and public and settings.HERMES_COMMANDS != "off":
        yield Error(
            "Without a sandbox no command may run where others can reach Hermes.",
            hint="Use HERMES_SANDBOX=auto, or HERMES_COMMANDS=off.",
            id="hermes.E016",
        )
    for name in ("SECRET_KEY", *(["HERMES_SECRET_KEYS"] if settings.HERMES_SECRET_KEYS else [])):
        values = getattr(settings, name)
        for value in [values] if isinstance(values, str) else values:
            if len(value) < 16 or SHIPPED.match(value):
                yield Error(
                    f"{name} is too short, or a word that others know.",
                    hint="Leave it out: one is made and kept in the data folder.",
                    id="hermes.E013",
                )
    if settings.BIND in PUBLIC and "HERMES_ORIGINS" not in env.names_given():
        yield Warning(
            f"HERMES_BIND={settings.BIND} listens to everybody, but only localhost is let in.",
            hint="Set HERMES_ORIGINS to the address that people type, with scheme and port.",
            id="hermes.W014",
        )
    plain = [o for o in settings.HERMES_ORIGINS if o.startswith("http://")]
    if any(not re.match(r"http://(localhost|127\.|\[::1\])", origin) for origin in plain):
        yield Warning(
            f"{plain[0]} is not encrypted: passwords and chats can be read on the way.",
            hint="Put a TLS proxy in front and use https:// in HERMES_ORIGINS.",
            id="hermes.W015",
        )


@register()
def names(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    """A name that nothing reads is most likely a slip of the pen."""
    for name, source in sorted(env.names_given().items()):
        known = name in env.DECLARED or name.startswith("HERMES_TEST_")
        if name.startswith("HERMES_") and not known:
            yield Warning(f"{name} (from {source}) is no setting of Hermes.", id="hermes.W020")


@register(Tags.security)
def files(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Files with secrets are nobody else's to read."""
    for name in ("hermes.env", "embedded.env", "secret_key", "field_key", "admin_password"):
        path = settings.VAR / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & 0o077 and os.name == "posix":
            yield Warning(
                f"{path} can be read by others.", hint=f"chmod 600 {path}", id="hermes.W021"
            )


@register(Tags.database)
def database(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterable[CheckMessage]:
    """The server is new enough and has room for the pools of all processes."""
    for alias in databases or ():
        connection = connections[alias]
        if connection.vendor != "postgresql":
            continue
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT current_setting('server_version_num')::int,"
                    " current_setting('max_connections')::int,"
                    " current_setting('server_encoding')"
                )
                number, most, encoding = cursor.fetchone()
        except DatabaseError as error:
            yield Error(f"The database {alias!r} does not answer: {error}", id="hermes.E030")
            continue
        if number < LOWEST_SERVER:
            yield Error("PostgreSQL 14 or later is needed.", id="hermes.E031")
        if encoding != "UTF8":
            yield Error(f"The database holds {encoding}; UTF8 is needed.", id="hermes.E032")
        needed = settings.PROCESSES * settings.DB_POOL + SPARE_CONNECTIONS
        if needed > most:
            yield Error(
                f"{settings.PROCESSES} processes with {settings.DB_POOL} connections each need "
                f"max_connections of {needed}; the server allows {most}.",
                hint="Lower HERMES_DB_POOL or HERMES_PROCESSES, or raise max_connections.",
                id="hermes.E033",
            )
