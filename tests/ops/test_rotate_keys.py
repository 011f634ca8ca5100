"""Rotating the key that encrypts what the database keeps encrypted."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from hermes.lib import vault
from sessions_app import intake
from sessions_app.models import History, ModelEndpoint

pytestmark = pytest.mark.django_db
OLD, NEW = "the-old-key-0123456789", "the-new-key-0123456789"


def endpoint(name: str, api_key: str) -> ModelEndpoint:
    return intake.register_endpoint(
        name=name,
        base_url="https://models.example/v1",
        api_key=api_key,
        model="m",
        window=8192,
        role="chat",
    )


def rotate() -> str:
    out = io.StringIO()
    call_command("rotate_keys", stdout=out)
    return out.getvalue()


def test_after_rotation_the_old_key_is_not_needed(settings) -> None:
    settings.HERMES_SECRET_KEYS = [OLD]
    made = endpoint("one", "sk-secret-of-one")
    endpoint("without a key", "")

    settings.HERMES_SECRET_KEYS = [NEW, OLD]
    assert "HERMES_SECRET_KEYS: 1." in rotate()

    settings.HERMES_SECRET_KEYS = [NEW]
    made.refresh_from_db()
    assert vault.unseal(made.sealed_key) == "sk-secret-of-one"
    assert made.key_origin == "https://models.example:443"
    assert History.objects.get(kind="reseal").data == {"endpoints": 1}
    assert "HERMES_SECRET_KEYS: 1." in rotate()  # again does no harm


def test_a_secret_that_no_key_opens_is_named_and_left_as_it_is(settings) -> None:
    settings.HERMES_SECRET_KEYS = [OLD]
    lost = endpoint("lost", "sk-secret-of-lost")
    settings.HERMES_SECRET_KEYS = [NEW]
    endpoint("other one", "sk-secret-of-other")

    with pytest.raises(CommandError, match="lost") as raised:
        rotate()

    assert "other one" not in str(raised.value)
    sealed = lost.sealed_key
    lost.refresh_from_db()
    assert lost.sealed_key == sealed
