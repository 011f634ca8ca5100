"""What beat asks for, a fresh worker knows."""

from __future__ import annotations

import json
import subprocess
import sys

LIST = """
import json
from hermes.celery import app
import django
django.setup()
app.loader.import_default_modules()
wanted = [entry["task"] for entry in app.conf.beat_schedule.values()]
print(json.dumps([wanted, [task for task in wanted if task not in app.tasks]]))
"""


def test_a_fresh_worker_knows_every_task_of_the_schedule() -> None:
    run = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    wanted, unknown = json.loads(run.stdout.splitlines()[-1])
    assert wanted
    assert unknown == []
