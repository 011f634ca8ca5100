"""Which model answers, and what a process has to load for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes import env
from sessions_app import endpoints, intake
from sessions_app.domain import Refused
from sessions_app.intake.turns import check_fits
from sessions_app.models import ModelEndpoint
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

LOOK = """
import sys, django
django.setup()
import hermes.web.routing, hermes.dashboard.routing
from celery import signals
from sessions_app import endpoints
print(endpoints.window_for(None), "openai" in sys.modules)
signals.worker_init.send(sender=None)
print("openai" in sys.modules)
"""


def endpoint(window: int, priority: int):
    return intake.register_endpoint(
        name=f"of {window}",
        base_url="http://127.0.0.1:9/v1",
        api_key="k",
        model="m",
        window=window,
        role="chat",
        priority=priority,
    )


def test_a_window_is_known_without_the_model():
    assert endpoints.window_for(None) == endpoints.model_for(None).window
    best, other = endpoint(9_000, 9), endpoint(5_000, 5)
    for chosen in (None, best.pk, other.pk, 0):
        assert endpoints.window_for(chosen) == endpoints.model_for(chosen).window


def test_a_message_has_to_fit_into_what_answers_not_into_what_was_chosen():
    """The endpoint that a chat has chosen is switched off; a smaller one answers."""
    chosen, _small = endpoint(100_000, 9), endpoint(5_000, 5)
    chat = factories.chat()
    chat.endpoint = chosen
    chat.save()
    text = "word " * 8_000
    check_fits(chat, text)
    ModelEndpoint.objects.filter(pk=chosen.pk).update(is_enabled=False)
    with pytest.raises(Refused) as refused:
        check_fits(chat, text)
    assert refused.value.code == "too_long"


@pytest.mark.process
def test_only_who_asks_models_loads_their_sdk(process_environment):
    """The web tells how full a context is; a worker has it before its first turn."""
    endpoint(9_000, 9)
    told = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=env.BASE,
        env={**process_environment, "DJANGO_SETTINGS_MODULE": "hermes.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout.split() == ["9000", "False", "True"]
