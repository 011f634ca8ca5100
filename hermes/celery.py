"""The Celery application; imported by ``HermesConfig.ready`` so that every process has it."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes.settings")

app = Celery("hermes")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
