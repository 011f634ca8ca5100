"""docs/settings.md tells every setting, with the default and the range that are in force."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes import env

ROW = re.compile(r"^\| `([A-Z_]+)` \| (.*?) \| (.*?) \| (.+?) \|$", re.M)
# Settings that are read outside hermes/env.py would escape; these read the environment themselves.
MAY_READ_ENVIRONMENT = {
    "hermes/env.py",
    "hermes/asgi.py",  # DJANGO_SETTINGS_MODULE
    "hermes/celery.py",
    "manage.py",
    "hermes/web/poller.py",  # ASGI_THREADS, which the start command sets
    "hermes/management/start/supervisor.py",  # passes it on to its programs
    "hermes/management/commands/up.py",
    "hermes/management/servers/identity.py",
    "hermes/management/servers/privileges.py",
}


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, str, str]]:
    text = (env.BASE / "docs" / "settings.md").read_text(encoding="utf-8")
    return {name: (default, allowed, told) for name, default, allowed, told in ROW.findall(text)}


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What a process that was told nothing but its data folder reads."""
    code = (
        "import json; from hermes import settings, env;"
        " print(json.dumps({d.name: (d.default, d.allowed) for d in env.DECLARED.values()}))"
    )
    quiet = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HERMES_") and name not in {"DATABASE_URL", "REDIS_URL"}
    }
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**quiet, "HERMES_VAR": str(tmp_path_factory.mktemp("var"))},
        cwd=env.BASE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name: (default, allowed) for name, (default, allowed) in json.loads(shown).items()}


def test_every_setting_is_documented_and_the_reverse(
    documented: dict[str, tuple[str, str, str]], declared: dict[str, tuple[str, str]]
) -> None:
    assert sorted(documented) == sorted(declared)


def test_defaults_and_ranges_are_true(
    documented: dict[str, tuple[str, str, str]], declared: dict[str, tuple[str, str]]
) -> None:
    for name, (default, allowed) in declared.items():
        told_default, told_allowed, _ = documented[name]
        assert told_allowed == allowed.replace(" | ", ", "), name
        if not told_default.startswith("("):  # in words, since it depends on something
            assert told_default == (default or "–"), name


def test_nothing_else_reads_the_environment() -> None:
    reading = set()
    for top in ("hermes", "sessions_app", "compression_app", "processes_app"):
        for path in (env.BASE / top).rglob("*.py"):
            if re.search(r"os\.(environ|getenv)|from os import .*environ", path.read_text("utf-8")):
                reading.add(str(Path(path).relative_to(env.BASE)))
    assert reading - MAY_READ_ENVIRONMENT == set()
