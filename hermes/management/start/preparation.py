"""What is done before the first process starts: tables, the first admin, the apps' own hooks."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.checks import WARNING, run_checks
from django.core.exceptions import ValidationError
from django.core.management import call_command

from hermes.management.servers.files import write_private
from hermes.management.servers.trouble import CannotStart

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What the start command tells about the login."""

    username: str
    new_password: str = ""  # only if it was generated now
    password_file: str = ""  # only if it was generated once


def prepare() -> Prepared:
    """Migrate, make the first admin, call ``HERMES_AT_START``; return what to tell.

    Raises:
        CannotStart: with what to do.
    """
    _refuse_unsafe()
    call_command("migrate", verbosity=0, interactive=False)
    told = first_admin()
    for name in settings.HERMES_AT_START:
        call_hook(name)
    return told


def _refuse_unsafe() -> None:
    found = run_checks(databases=["default"])
    errors = [message for message in found if message.is_serious()]
    if errors:
        raise CannotStart(
            " ".join(f"{e.msg}{f' {e.hint}' if e.hint else ''} ({e.id})" for e in errors)
        )
    for message in found:
        if message.level >= WARNING:
            log.warning("%s (%s)", message.msg, message.id)


def call_hook(name: str) -> bool:
    """Call the function of that dotted name without arguments; False if there is none.

    An exception is logged and stops no start: what a hook does, an operator can do later.
    """
    module_name, _, function_name = name.rpartition(".")
    try:
        function = getattr(import_module(module_name), function_name)
    except (ModuleNotFoundError, AttributeError):
        log.debug("no such start hook", extra={"hook": name})
        return False
    try:
        function()
    except Exception:
        log.exception("start hook failed", extra={"hook": name})
    return True


def password_file() -> Path:
    """Where a generated password of the first admin is kept, mode 0600."""
    return Path(settings.VAR) / "admin_password"


def first_admin() -> Prepared:
    """Make an admin where there is none; return how to log in.

    Raises:
        CannotStart: ``HERMES_ADMIN_PASSWORD`` is too weak, or the name is taken.
    """
    users = get_user_model()._default_manager
    admin = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    kept = password_file()
    if admin is not None:
        return Prepared(admin.get_username(), "", str(kept) if kept.exists() else "")
    username = settings.ADMIN_USERNAME
    if users.filter(**{get_user_model().USERNAME_FIELD: username}).exists():
        raise CannotStart(
            f"There is a user {username!r}, but no active admin. Choose another name for the "
            "admin to be made with HERMES_ADMIN_USERNAME."
        )
    password = settings.ADMIN_PASSWORD
    if password:
        try:
            validate_password(password, get_user_model()(username=username))
        except ValidationError as error:
            raise CannotStart(f"HERMES_ADMIN_PASSWORD: {' '.join(error.messages)}") from error
        users.create_superuser(username, "", password)
        return Prepared(username)
    password = secrets.token_urlsafe(12)
    write_private(kept, password + "\n")  # first: an admin nobody can log in as is of no use
    users.create_superuser(username, "", password)
    return Prepared(username, password, str(kept))
