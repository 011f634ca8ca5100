"""What a child cannot do, at each level that this machine has: X01 to X13."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection

from processes_app import files, sandbox
from processes_app.models import ProcessRecord

from . import facts
from .conftest import until
from .test_supervisor import start, until_ended, until_runs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]
LEVELS = [str(level) for level in sandbox.levels()]
CONFINED = [level for level in LEVELS if level != "none"]
table: dict[str, dict[str, str]] = {}


@pytest.fixture(params=LEVELS)
def level(request, places, settings):
    settings.HERMES_SANDBOX = request.param
    settings.HERMES_SANDBOX_ACCEPTED = "none"
    return request.param


@pytest.fixture(params=CONFINED)
def confined(request, places, settings):
    settings.HERMES_SANDBOX = request.param
    settings.HERMES_SANDBOX_ACCEPTED = "none"
    return request.param


@pytest.fixture
def state(places):
    return facts.talked()


def run(state, command: str, **columns) -> ProcessRecord:
    return until_ended(start(state, command, **columns), 30)


def note(case: str, level: str, is_kept: bool) -> bool:
    table.setdefault(case, {})[level] = "refused" if is_kept else "open"
    return is_kept


def expect(case: str, level: str, is_kept: bool, *, at_none: bool = False) -> None:
    """What is kept from a child at every level but none, and perhaps there too."""
    note(case, level, is_kept)
    if level != "none" or at_none:
        assert is_kept, f"{case} at {level}"


def test_the_level_is_in_the_record_and_commands_run(state, supervisor, level):
    ended = run(state, "echo here > file; cat file; ls /usr/bin > /dev/null && pwd")

    assert ended.sandbox == level
    assert (ended.exit_code, ended.tail.splitlines()[0]) == (0, "here")
    assert (files.workspace_of(state.chat.key) / "file").read_text() == "here\n"


def test_x01_files_of_others(state, supervisor, level):
    secret = Path(django_settings.VAR) / "secret_key"
    secret.write_text("the-key")
    if level == "bwrap":
        ended = run(state, f"cat /etc/shadow {secret}; ls {Path(django_settings.VAR)} /root /home")
    else:
        ended = run(state, f"cat /etc/shadow {secret}; ls {Path(django_settings.VAR)}")
    is_kept = "root:" not in ended.tail and "the-key" not in ended.tail
    expect("X01 /etc/shadow, secret_key", level, is_kept and "processes" not in ended.tail)


def test_x02_environments_of_others(state, supervisor, level):
    web = subprocess.Popen(["sleep", "60"], env={"CANARY": "env-canary"})
    try:
        ended = run(state, f"cat /proc/{web.pid}/environ /proc/1/environ | tr '\\0' ' '; ls /proc")
        expect("X02 /proc/<web>/environ", level, "env-canary" not in ended.tail)
    finally:
        web.kill()
        web.wait()


CONNECT = (
    "import socket,sys\n"
    "for kind, where in {targets!r}:\n"
    "    s = None\n"
    "    try:\n"
    "        s = socket.socket(getattr(socket, kind)); s.settimeout(2)\n"
    "        s.connect(where if kind == 'AF_UNIX' else tuple(where)); print('reached', where)\n"
    "    except OSError as error: print('refused', where, error)\n"
)


def servers() -> Iterator[tuple[str, object]]:
    """Every server of ours, as an address."""
    told = connection.settings_dict
    host, port = str(told["HOST"]), int(told["PORT"] or 5432)
    yield (
        ("AF_UNIX", f"{host}/.s.PGSQL.{port}")
        if host.startswith("/")
        else ("AF_INET", [host, port])
    )
    redis = django_settings.REDIS_URL
    if redis.startswith("unix"):
        yield "AF_UNIX", redis.removeprefix("unix://").split("@")[-1].split("?")[0]
    else:
        from urllib.parse import urlsplit

        parts = urlsplit(redis)
        yield "AF_INET", [parts.hostname, parts.port]


def test_x03_x13_every_server_of_ours(state, supervisor, level):
    with socket.create_server(("127.0.0.1", 0)) as web:
        targets = [*servers(), ("AF_INET", ["127.0.0.1", web.getsockname()[1]])]
        python = _python(level)
        workspace = files.workspace_of(state.chat.key)
        (workspace / "try.py").write_text(CONNECT.format(targets=targets))
        ended = run(state, f"{python} try.py")
    expect("X03 X13 connect to database, broker, web", level, "reached" not in ended.tail)
    if level != "none":
        lines = ended.tail.splitlines()
        assert len([line for line in lines if line.startswith("refused ")]) == len(targets)


def _python(level: str) -> str:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system Python to try it with")
    return "/usr/bin/python3"


def test_x04_a_fork_bomb_is_ended(state, supervisor, level, settings):
    settings.HERMES_PROCESS_TASKS = 40
    began = time.monotonic()
    # It ends by itself: where nothing holds it, it is not to take the machine from other tests.
    bomb = "f() { sleep 0.05; [ $1 -gt 6 ] || { f $(($1+1)) & f $(($1+1)) & wait; }; }; f 0"
    ended = run(state, bomb, limit_seconds=15)
    expect("X04 fork bomb", level, time.monotonic() - began < 25, at_none=True)
    assert ended.status == "ended"


def test_x05_a_huge_file_is_cut(state, supervisor, level, settings):
    settings.HERMES_PROCESS_FILE_BYTES = 1_000_000
    run(state, "head -c 3000000 /dev/zero > huge; true")
    size = (files.workspace_of(state.chat.key) / "huge").stat().st_size
    expect("X05 huge file", level, size <= 1_000_000, at_none=True)


@pytest.mark.skipif("bwrap" not in LEVELS, reason="no bubblewrap here")
def test_x05_no_folder_in_memory_takes_all_of_it(state, supervisor, settings):
    settings.HERMES_SANDBOX = "bwrap"
    fill = (
        "n=0; while [ $n -lt 5 ]; do head -c 100000000 /dev/zero >$d/full$n 2>/dev/null; "
        "n=$((n+1)); done; du -sm $d | cut -f1"
    )
    command = f"for d in /tmp /dev/shm; do {fill}; done; touch /x /etc/x /dev/x; echo >/dev/null"
    lines = run(state, command).tail.splitlines()
    assert int(lines[0]) <= 257
    assert int(lines[1]) <= 65
    assert sum("Read-only" in line for line in lines) == 3


def test_x06_signals_to_others(state, supervisor, level):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        run(state, f"kill -9 {victim.pid}; true")
        expect("X06 kill another process", level, victim.poll() is None)
    finally:
        victim.kill()
        victim.wait()


def test_x07_an_escape_by_setsid_ends_with_it(state, supervisor, level):
    ended = run(state, "(setsid sleep 307 > /dev/null 2>&1 < /dev/null &) ; sleep 0.2; exit 0")
    left = subprocess.run(["pgrep", "-f", "^sleep 307$"], capture_output=True).stdout
    expect("X07 setsid escape", level, left == b"", at_none=True)
    assert ended.exit_code == 0


def test_x08_a_link_out_of_the_workspace(state, supervisor, level, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside-text")
    run(state, f"ln -s {tmp_path / 'outside'} link")
    ended = run(state, "cat link/file; echo x > link/new; true")
    is_kept = "outside-text" not in ended.tail and not (tmp_path / "outside" / "new").exists()
    expect("X08 symlink out of the workspace", level, is_kept)


def test_x09_tracing_another_process(state, supervisor, level):
    victim = subprocess.Popen(["sleep", "60"])
    code = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
        f"print('traced' if libc.ptrace(16, {victim.pid}, 0, 0) == 0 else 'refused')"
    )
    try:
        python = _python(level)
        (files.workspace_of(state.chat.key) / "trace.py").write_text(code)
        ended = run(state, f"{python} trace.py")
        expect("X09 ptrace", level, "traced" not in ended.tail)
    finally:
        victim.kill()
        victim.wait()


def test_x10_files_of_the_home_folder(state, supervisor, level, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    run(state, f"echo evil >> {home}/.bashrc; true")
    expect("X10 write ~/.bashrc", level, not (home / ".bashrc").exists())


def test_x11_a_spin_is_stopped(state, supervisor, level):
    ended = run(state, "while :; do :; done", limit_seconds=1)
    expect("X11 endless loop", level, ended.status == "ended", at_none=True)
    assert ended.reason == "timed_out" or ended.signal_number or ended.exit_code


def test_x12_no_terminal_of_ours_is_reached(state, supervisor, level):
    ended = run(
        state, "test -t 0 || echo none; (exec 3<>/dev/tty) 2>/dev/null && echo tty; cat; true"
    )
    expect("X12 stdin, tty", level, ended.tail == "none\n", at_none=True)


def test_the_shim_and_its_files_are_out_of_reach(state, supervisor, confined):
    process = until_runs(start(state, "sleep 1"))
    folder = files.Folder.of(process.uid).path
    ended = run(
        state, f"echo '{{\"code\": 0}}' > {folder}/exit.json; kill -9 $PPID; cat {folder}/*"
    )

    assert until(lambda: ProcessRecord.objects.get(pk=process.pk).exit_code == 0)
    assert "limits" not in ended.tail


@pytest.fixture(scope="module", autouse=True)
def _print_the_table():
    yield
    print(f"\nsandbox levels here: {', '.join(LEVELS)} on {sys.platform}")
    for case in sorted(table):
        print(f"{case:42} {table[case]}")
