"""Secrets at rest: sealed with ``HERMES_SECRET_KEYS``, of which the first one seals.

Older keys open what they sealed, until ``reseal`` has moved it under the first.
"""

from __future__ import annotations

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class Unsealable(ValueError):
    """None of the keys opens this: the key that sealed it is gone, or it was changed."""


def seal(text: str) -> str:
    """The text, sealed under the first key; sealing twice gives two different results."""
    return _fernet(_keys()).encrypt(text.encode()).decode("ascii")


def unseal(sealed: str) -> str:
    """The text that was sealed; raises ``Unsealable``."""
    try:
        return _fernet(_keys()).decrypt(sealed.encode("ascii", "replace")).decode()
    except InvalidToken:
        raise Unsealable("None of the keys in HERMES_SECRET_KEYS opens this.") from None


def reseal(sealed: str) -> str:
    """The same secret, sealed anew under the first key; raises ``Unsealable``."""
    return seal(unseal(sealed))


def _keys() -> tuple[str, ...]:
    return tuple(settings.HERMES_SECRET_KEYS)


@functools.lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    """Any text as a Fernet key."""
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"hermes vault 1")
    return base64.urlsafe_b64encode(hkdf.derive(key.encode()))
