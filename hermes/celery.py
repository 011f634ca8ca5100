"""The Celery application; imported by ``HermesConfig.ready`` so that every process has it."""

from __future__ import annotations

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes.settings")

# Every worker would print six lines about root; the start command says it in one.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("hermes")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# A worker knows only the tasks that were imported before it was ready.
app.autodiscover_tasks(related_name="sweeps")
