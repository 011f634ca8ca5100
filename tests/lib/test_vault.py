"""Secrets at rest."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.lib.vault import Unsealable, reseal, seal, unseal

SECRET = "sk-test-ABC123xyz"


def test_what_was_sealed_comes_back_and_is_not_readable(settings: Any) -> None:
    settings.HERMES_SECRET_KEYS = ["any text at all, äöü"]
    sealed = seal(SECRET)
    assert SECRET not in sealed
    assert sealed != seal(SECRET)
    assert unseal(sealed) == SECRET
    assert unseal(seal("")) == ""


def test_a_key_that_was_put_in_front_seals_and_the_older_still_opens(settings: Any) -> None:
    settings.HERMES_SECRET_KEYS = ["old"]
    sealed = seal(SECRET)
    settings.HERMES_SECRET_KEYS = ["new", "old"]
    assert unseal(sealed) == SECRET
    moved = reseal(sealed)
    settings.HERMES_SECRET_KEYS = ["new"]
    assert unseal(moved) == SECRET
    with pytest.raises(Unsealable):
        unseal(sealed)


@pytest.mark.parametrize("broken", ["", "nonsense", "ünicode", "gAAAAA=="])
def test_what_cannot_be_opened_says_so_without_the_secret(settings: Any, broken: str) -> None:
    settings.HERMES_SECRET_KEYS = ["a key"]
    with pytest.raises(Unsealable, match="HERMES_SECRET_KEYS"):
        unseal(broken)
    changed = seal(SECRET)
    changed = changed[:-6] + ("A" if changed[-6] != "A" else "B") + changed[-5:]
    with pytest.raises(Unsealable):
        unseal(changed)
