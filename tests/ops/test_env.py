"""Reading of settings: the environment, then the two files of the data folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes import env


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty data folder; nothing that a test reads stays known."""
    declared = dict(env.DECLARED)
    monkeypatch.setenv("HERMES_VAR", str(tmp_path))
    env.forget_files()
    yield tmp_path
    env.forget_files()
    env.DECLARED.clear()
    env.DECLARED.update(declared)


def test_environment_wins_over_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "embedded.env").write_text(
        "HERMES_A=embedded\nHERMES_B=embedded\nHERMES_C=embedded\n"
    )
    (folder / "hermes.env").write_text("# mine\nexport HERMES_B='file'\nHERMES_C = \"file\"\n\n")
    monkeypatch.setenv("HERMES_C", "environment")
    assert [env.text(f"HERMES_{name}", default="none") for name in "ABCD"] == [
        "embedded",
        "file",
        "environment",
        "none",
    ]
    assert [env.DECLARED[f"HERMES_{name}"].source for name in "ABCD"] == [
        "var/embedded.env",
        "var/hermes.env",
        "environment",
        "default",
    ]


@pytest.mark.parametrize("raw", ["-1", "0", "101", "abc", "1e9", "", "60%", "true", "1.5"])
def test_whole_numbers_out_of_range_are_refused(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_N", raw)
    with pytest.raises(env.BadSettings) as refused:
        env.integer("HERMES_N", default=5, low=1, high=100)
    assert f"HERMES_N={raw!r} (from environment)" in str(refused.value)
    assert "from 1 to 100" in str(refused.value)


@pytest.mark.parametrize("raw", ["nan", "inf", "2", "-0.1", "60%", "true"])
def test_numbers_out_of_range_are_refused(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_N", raw)
    with pytest.raises(env.BadSettings, match="from 0 to 1"):
        env.number("HERMES_N", default=0.5, low=0, high=1)


@pytest.mark.parametrize("raw", ["example.org", "//x", "ftp://x/y", "https://", "postgresql:"])
def test_addresses_need_scheme_and_host(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_U", raw)
    with pytest.raises(env.BadSettings, match="begins with https://"):
        env.url("HERMES_U", schemes=("https", "postgresql"))


def test_a_bad_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://u:hunter2@h/d")
    with pytest.raises(env.BadSettings) as refused:
        env.url("DATABASE_URL", schemes=("postgresql",), secret=True)
    assert "hunter2" not in str(refused.value)


def test_problems_are_told_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_N", "x")
    (folder / "hermes.env").write_text("HERMES_M=7\nno equals sign\n")
    env.collect()
    assert env.integer("HERMES_N", default=5, low=1, high=9) == 5
    assert env.boolean("HERMES_M", default=True) is True
    with pytest.raises(env.BadSettings) as refused:
        env.refuse_bad()
    assert len(refused.value.problems) == 3
    assert "line 2, is not NAME=value" in str(refused.value)
    assert "(from var/hermes.env) is not true or false" in str(refused.value)


def test_a_secret_is_made_once_and_private(folder: Path) -> None:
    first = env.kept_secret("HERMES_S", "s")
    assert len(first) >= 48
    assert env.kept_secret("HERMES_S", "s") == first
    assert stat.S_IMODE((folder / "s").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["s"]


@pytest.mark.parametrize(
    "command",
    [
        [str(env.BASE / "manage.py"), "check"],
        ["-m", "daphne", "hermes.asgi:application"],
        ["-m", "celery", "-A", "hermes", "worker"],
    ],
    ids=["manage", "daphne", "celery"],
)
def test_every_entry_ends_in_plain_words(command: list[str], folder: Path) -> None:
    bad = {"HERMES_PORT": "abc", "HERMES_ORIGINS": "http://h:99999", "HERMES_VAR": str(folder)}
    ended = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **bad},
        cwd=env.BASE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "HERMES_PORT='abc' (from environment)" in ended.stderr
    assert "'http://h:99999' is not a full origin" in ended.stderr
    assert "Traceback" not in ended.stderr
