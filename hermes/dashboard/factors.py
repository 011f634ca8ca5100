"""The second factor: set up, asked for at login, needed by staff where others can reach Hermes."""

from __future__ import annotations

import hmac
import secrets
import time
from hashlib import sha256
from typing import Final

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

from hermes.lib import totp, vault
from hermes.lib.db import DbNow
from sessions_app import intake

from .models import SecondFactor

RECOVERY: Final = 8  # codes on paper
SPARED: Final = ("/admin/desk/second-factor/", "/admin/desk/confirm/", "/admin/login/")


def of(user_id: int) -> SecondFactor | None:
    """The confirmed second factor of a person, if there is one."""
    return SecondFactor.objects.filter(user=user_id, confirmed_at__isnull=False).first()


def begin(user_id: int) -> str:
    """A secret to set up: the one that waits to be confirmed, or a new one."""
    row = SecondFactor.objects.filter(user=user_id, confirmed_at=None).first()
    if row is not None:
        try:
            return vault.unseal(row.sealed_secret)
        except vault.Unsealable:
            row.delete()
    secret = totp.new_secret()
    SecondFactor.objects.create(user_id=user_id, sealed_secret=vault.seal(secret))
    return secret


@transaction.atomic
def confirm(user_id: int, told: str, *, actor: str) -> list[str]:
    """Make the factor count if the code is right; the codes for paper, or none if it is not."""
    row = SecondFactor.objects.filter(user=user_id, confirmed_at=None).first()
    if row is None:
        return []
    step = totp.matching_step(vault.unseal(row.sealed_secret), told, now=time.time())
    if step is None:
        return []
    codes = [secrets.token_hex(5) for _ in range(RECOVERY)]
    landed = SecondFactor.objects.filter(pk=row.pk, confirmed_at=None).update(
        confirmed_at=DbNow(), last_step=step, recovery=[_hashed(code) for code in codes]
    )
    if not landed:
        return []
    intake.record_operation(
        subject=f"user:{user_id}", what="second_factor", actor=actor, reason="set up"
    )
    return codes


def check(row: SecondFactor, told: str) -> bool:
    """Whether a code is right now; it is used up by that. A code on paper counts once, too."""
    try:
        secret = vault.unseal(row.sealed_secret)
    except vault.Unsealable:
        return False
    step = totp.matching_step(secret, told, now=time.time(), after=row.last_step)
    rows = SecondFactor.objects.filter(pk=row.pk, last_step=row.last_step)
    if step is not None:
        return rows.update(last_step=step) == 1  # of two that come with the same code, one
    hashed = _hashed("".join(told.split()).lower())
    if hashed not in row.recovery:
        return False
    left = [code for code in row.recovery if code != hashed]
    return rows.filter(recovery=row.recovery).update(recovery=left) == 1


@transaction.atomic
def forget(user_id: int, *, actor: str, reason: str) -> bool:
    """Take the second factor of a person away; False if there was none."""
    gone, _rows = SecondFactor.objects.filter(user=user_id).delete()
    if gone:
        intake.record_operation(
            subject=f"user:{user_id}", what="forget_factor", actor=actor, reason=reason
        )
    return bool(gone)


def reseal() -> tuple[int, list[str]]:
    """Seal every secret anew under the first key; how many, and whose none opens."""
    moved, unopened = 0, []
    for row in SecondFactor.objects.select_related("user"):
        try:
            sealed = vault.reseal(row.sealed_secret)
        except vault.Unsealable:
            unopened.append(f"second factor of {row.user.get_username()}")
            continue
        rows = SecondFactor.objects.filter(pk=row.pk, sealed_secret=row.sealed_secret)
        moved += rows.update(sealed_secret=sealed)
    return moved, unopened


def _hashed(code: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), code.encode(), sha256).hexdigest()


class NeedsSecondFactor(MiddlewareMixin):
    """Staff set up a second factor before anything else of the admin, where it is required."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """To the page where it is set up, or nothing."""
        if not settings.HERMES_SECOND_FACTOR_REQUIRED or not request.path.startswith("/admin/"):
            return None
        user = request.user
        if not user.is_authenticated or not user.is_staff or request.path.startswith(SPARED):
            return None
        if of(user.pk) is not None:
            return None
        return HttpResponseRedirect(reverse("desk:second-factor"))
