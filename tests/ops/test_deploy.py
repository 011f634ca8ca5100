"""Files under deploy/ start what the start command starts, with the same options."""

from __future__ import annotations

import re

import pytest

from hermes import env
from hermes.management.start.programs import programs

FOLDER = env.BASE / "deploy"
# Options that are the supervisor's, the log's, or the address's.
LEFT_OUT = {
    *("--loglevel", "--http-timeout", "--application-close-timeout", "--websocket_connect_timeout"),
    *("--max-old-space",),
}
UNITS = {
    "web": "systemd/hermes-web@.service",
    "beat": "systemd/hermes-beat.service",
    "supervisor": "systemd/hermes-supervisor.service",
    "turns": "systemd/hermes-turns.service",
    "background": "systemd/hermes-background.service",
}


def joined(name: str) -> str:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return re.sub(r"\\\n\s*", " ", text)


def section(name: str) -> str:
    """The lines of one service of the compose file."""
    text = (FOLDER / "compose.yml").read_text(encoding="utf-8")
    found = re.search(rf"^  {name}:\n((?:    .*\n|\n)+)", text, re.M)
    assert found, name
    return found[1]


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
@pytest.mark.parametrize("kind", ["unit", "compose"])
def test_it_starts_the_same_program(kind: str, program) -> None:
    text = joined(UNITS[program.name]) if kind == "unit" else section(program.name)
    words = list(program.command[2:])
    module = program.command[1] == "-m"
    assert f"-m {words[0]}" in text if module else f"manage.py {words[0]}" in text
    options = {word.split("=")[0] for word in words if word.startswith("--")} - LEFT_OUT
    assert {option for option in options if option not in text} == set()
    for option in ("-Q", "-c", "-P", "-v"):
        if option in words:
            value = words[words.index(option) + 1]
            assert re.search(rf"{option} {re.escape(value)}\b", text)


def test_the_target_wants_every_unit() -> None:
    target = joined("systemd/hermes.target")
    for path in FOLDER.glob("systemd/*.service"):
        assert path.name.replace("@.", "@8000.") in target, path.name


def test_every_setting_of_the_example_is_one() -> None:
    page = (env.BASE / "docs" / "settings.md").read_text(encoding="utf-8")
    named = re.findall(r"^(HERMES_\w+|DATABASE_URL|REDIS_URL)=", joined("hermes.env.example"), re.M)
    assert len(named) > 8
    assert [name for name in named if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_a_proxy_sets_what_is_believed_and_hides_the_numbers(name: str) -> None:
    text = joined(name)
    assert "X-Forwarded-For" in text
    assert "X-Forwarded-Proto" in text
    assert "/metrics" in text


def test_no_secret_is_shipped() -> None:
    for line in joined("hermes.env.example").splitlines():
        name, _, value = line.partition("=")
        if re.search(r"PASSWORD|SECRET|TOKEN", name) and not name.startswith("#"):
            assert value == "", line
