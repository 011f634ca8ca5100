"""System checks, each made to speak once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from hermes import checks, env


def ids(found: Any) -> list[str]:
    return sorted(message.id for message in found)


def test_these_settings_pass(settings: Settings) -> None:
    assert ids(checks.doors(None)) == []
    assert ids(checks.versions(None)) == []
    assert ids(checks.names(None)) == []
    assert ids(checks.files(None)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ALLOWED_HOSTS": ["*"]}, "hermes.E010"),
        ({"ALLOWED_HOSTS": [".example.org"]}, "hermes.E010"),
        ({"CSRF_TRUSTED_ORIGINS": ["https://*.example.org"]}, "hermes.E011"),
        ({"BIND": "0.0.0.0", "DEBUG": True}, "hermes.E012"),
        ({"SECRET_KEY": "changeme"}, "hermes.E013"),
        ({"SECRET_KEY": "django-insecure-0123456789abcdef"}, "hermes.E013"),
        ({"HERMES_SECRET_KEYS": ["x" * 40, "short"]}, "hermes.E013"),
        ({"BIND": "::"}, "hermes.W014"),
        ({"HERMES_ORIGINS": ["http://chat.example.org"]}, "hermes.W015"),
    ],
)
def test_an_unsafe_door_is_told(change: dict[str, object], said: str, settings: Settings) -> None:
    for name, value in change.items():
        setattr(settings, name, value)
    assert said in ids(checks.doors(None))


def test_versions_outside_the_known_range(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"Django": "5.2.13", "daphne": "4.2.1", "redis": "8.0.0"}
    monkeypatch.setattr(checks, "version", old.__getitem__)
    assert ids(checks.versions(None)) == ["hermes.E001", "hermes.E001", "hermes.E002"]


def test_an_unknown_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PROT", "8001")
    (told,) = checks.names(None)
    assert "HERMES_PROT (from environment)" in told.msg


def test_a_secret_that_others_can_read_is_told(tmp_path: Path, settings: Settings) -> None:
    settings.VAR = tmp_path
    (tmp_path / "secret_key").write_text("x")
    (tmp_path / "secret_key").chmod(0o644)
    assert ids(checks.files(None)) == ["hermes.W021"]


@pytest.mark.django_db
def test_the_pools_must_fit_into_the_server(settings: Settings) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        most = int(cursor.fetchone()[0])
    settings.DB_POOL, settings.PROCESSES = 10, (most - 10) // 10
    assert ids(checks.database(None, databases=["default"])) == []
    settings.PROCESSES += 1
    (told,) = checks.database(None, databases=["default"])
    assert told.id == "hermes.E033"
    assert f"allows {most}" in told.msg


def test_production_settings_are_clean(tmp_path: Path) -> None:
    """``check --deploy`` says nothing in production settings."""
    given = {
        "HERMES_VAR": str(tmp_path),
        "HERMES_ORIGINS": "https://chat.test",
        "DATABASE_URL": "postgresql://u:p@db.test/hermes",
        "REDIS_URL": "redis://:p@broker.test:6379/0",
    }
    ended = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        env={**os.environ, **given},
        cwd=env.BASE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "no issues" in ended.stdout


def test_two_installations_have_different_keys(tmp_path: Path) -> None:
    keys = set()
    for name in ("one", "two"):
        shown = subprocess.run(
            [
                sys.executable,
                "-c",
                "from hermes import settings as s;"
                " print(s.SECRET_KEY, s.HERMES_SECRET_KEYS, s.DEBUG)",
            ],
            env={**os.environ, "HERMES_VAR": str(tmp_path / name)},
            cwd=env.BASE,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert shown.pop() == "False"
        keys.update(shown)
    assert len(keys) == 4
