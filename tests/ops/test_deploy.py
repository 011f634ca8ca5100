"""Files under deploy/ start what the start command starts, with the same options."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from hermes import env
from hermes.checks import SPARE_CONNECTIONS
from hermes.dashboard import routing as of_the_desk
from hermes.management.start.programs import programs
from hermes.web import routing as of_chats
from hermes.web.headers import PROBES

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


def services() -> dict[str, Any]:
    """The services of the compose file by name, anchors and all resolved."""
    return yaml.safe_load((FOLDER / "compose.yml").read_text(encoding="utf-8"))["services"]


def ours() -> dict[str, Any]:
    """Those that are Hermes itself."""
    return {name: each for name, each in services().items() if each["image"] == "hermes"}


def example() -> dict[str, str]:
    """Names and values of the environment's example."""
    lines = joined("hermes.env.example").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def option(unit: str, name: str) -> list[str]:
    """All values that a unit gives to an option."""
    return re.findall(rf"^{name}=(.*)$", joined(f"systemd/{unit}"), re.M)


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


def test_a_login_may_be_tried_again_and_sockets_are_passed_on_for_long() -> None:
    text = joined("nginx.conf")
    assert "limit_req_status 429;" in text
    location = re.search(r"location /ws/ \{(.*?)\}", text, re.S)
    assert location
    assert "proxy_buffering off;" in location[1]
    assert "proxy_read_timeout 1h;" in location[1]
    patterns = [str(route.pattern) for route in (*of_chats.sockets, *of_the_desk.sockets)]
    assert len(patterns) == 2
    assert all(pattern.startswith("^ws/") for pattern in patterns)


def test_the_proxy_asks_the_ports_on_which_the_units_listen() -> None:
    wanted = re.findall(r"hermes-web@(\d+)\.service", joined("systemd/hermes.target"))
    asked = re.findall(r"server 127\.0\.0\.1:(\d+);", joined("nginx.conf"))
    assert wanted == asked
    assert len(wanted) == 2


def test_caddy_asks_every_web_container_and_relies_on_no_check_that_it_does_not_make() -> None:
    text = re.sub(r"#.*", "", joined("Caddyfile"))
    port = re.search(r"-p (\d+)", services()["web"]["command"])[1]
    assert re.search(rf"dynamic a \{{\s+name web\s+port {port}\s", text)
    assert "health_uri" not in text, "not made for upstreams that are looked up"
    assert "fail_duration" in text
    assert "least_conn" not in text, "what is gone has the fewest connections"
    assert services()["web"]["deploy"]["replicas"] == 2


def test_a_container_is_asked_how_it_is_where_that_is_answered() -> None:
    web = services()["web"]
    url = urlsplit(re.search(r"http://[^']+", web["healthcheck"]["test"][-1])[0])
    assert url.path in PROBES
    assert f"-p {url.port}" in web["command"]
    assert f"EXPOSE {url.port}" in joined("Dockerfile")


def test_containers_share_what_commands_have_written() -> None:
    home = re.search(r"HERMES_VAR=(\S+)", joined("Dockerfile"))[1]
    mounted = {name: each["volumes"] for name, each in ours().items()}
    assert mounted == {name: [f"commands:{home}"] for name in ours()}
    assert not any(home in str(each.get("tmpfs")) for each in ours().values())
    # Its rows carry the name of the host: with a new one nobody would follow the old commands.
    assert services()["supervisor"]["hostname"]


def test_containers_find_their_servers_and_the_server_has_room() -> None:
    told, all_of = example(), services()
    database, broker = urlsplit(told["DATABASE_URL"]), urlsplit(told["REDIS_URL"])
    server = all_of["postgres"]["environment"]
    assert (database.hostname, database.username) == ("postgres", server["POSTGRES_USER"])
    assert database.path == f"/{server['POSTGRES_DB']}"
    assert broker.hostname in all_of
    used = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yml").read_text(encoding="utf-8")))
    assert used <= set(told)
    most = int(re.search(r"max_connections=(\d+)", all_of["postgres"]["command"])[1])
    page = (env.BASE / "docs" / "settings.md").read_text(encoding="utf-8")
    pool = int(re.search(r"`HERMES_DB_POOL` \| (\d+)", page)[1])
    assert int(told["HERMES_PROCESSES"]) * pool + SPARE_CONNECTIONS <= most
    holders = sum(each.get("deploy", {}).get("replicas", 1) for each in ours().values())
    assert int(told["HERMES_PROCESSES"]) >= holders - 2  # prepare has ended; beat asks for nothing


def test_the_command_that_the_file_names_is_the_one_that_works() -> None:
    first = (FOLDER / "compose.yml").read_text(encoding="utf-8").splitlines()[0]
    command = first.partition("docker compose")[2].strip()
    assert command.startswith("--env-file deploy/hermes.env ")  # for what stands in ${…}
    page = (env.BASE / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    assert f"docker compose {command}" in page


def test_an_image_holds_what_runs_and_no_secret() -> None:
    text = joined("Dockerfile")
    for path in re.findall(r"requirements/\S+\.lock", text):
        assert (env.BASE / path).exists()
    left_out = (env.BASE / ".dockerignore").read_text(encoding="utf-8").split()
    assert {"deploy/hermes.env", "var", ".git"} <= set(left_out)
    assert set(left_out).isdisjoint({"static", "templates", "requirements", "manage.py", "*.md"})


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
def test_a_unit_gives_a_program_its_time_and_its_settings(program) -> None:
    unit = UNITS[program.name].removeprefix("systemd/")
    assert int(option(unit, "TimeoutStopSec")[0]) >= program.stop_seconds
    grace = ours()[program.name]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= program.stop_seconds
    assert option(unit, "Restart") == ["always"]
    assert option(unit, "EnvironmentFile") == option("hermes-prepare.service", "EnvironmentFile")
    assert option(unit, "Environment") == option("hermes-prepare.service", "Environment")
    assert option(unit, "Requires") == ["hermes-prepare.service"]
    assert "hermes-prepare.service" in option(unit, "After")[0]
    folder = option(unit, "WorkingDirectory")[0]
    assert option(unit, "ExecStart")[0].startswith(f"{folder}/.venv/bin/python ")


def test_a_worker_that_judges_the_sandbox_is_let_as_much_as_what_starts_it() -> None:
    worker, supervisor = "hermes-turns.service", "hermes-supervisor.service"
    for name in ("RestrictAddressFamilies", "PrivateDevices", "ProtectKernelTunables"):
        assert option(worker, name) == option(supervisor, name), name
    assert "AF_NETLINK" in option(supervisor, "RestrictAddressFamilies")[0]
    assert option(supervisor, "KillMode") == ["process"]
    assert option("hermes-prepare.service", "RemainAfterExit") == ["yes"]


def test_no_secret_is_shipped() -> None:
    for line in joined("hermes.env.example").splitlines():
        name, _, value = line.partition("=")
        if re.search(r"PASSWORD|SECRET|TOKEN", name) and not name.startswith("#"):
            assert value == "", line
