"""Real children: their ends, their kills, and a supervisor that is not always there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from processes_app import files, intake, sandbox
from processes_app.domain import KillBy
from processes_app.files import Folder
from processes_app.models import ProcessRecord
from processes_app.supervisor import Supervisor

from . import facts
from .conftest import gone, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


@pytest.fixture
def state(places):
    return facts.talked()


def start(state, command: str, **columns) -> ProcessRecord:
    """A row as the intake writes it, for the supervisor to find."""
    return facts.add_process(
        state,
        command=command,
        status="starting",
        host="",
        boot_id="",
        pid=None,
        pid_start="",
        started_at=None,
        **{"limit_seconds": 60, **columns},
    )


def row(process) -> ProcessRecord:
    return ProcessRecord.objects.get(pk=process.pk)


def until_ended(process, seconds: float = 15.0) -> ProcessRecord:
    until(lambda: not row(process).is_active, seconds)
    return row(process)


def until_runs(process) -> ProcessRecord:
    until(lambda: row(process).status == "running")
    return row(process)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("echo done", 0, "finished with exit code 0, as reported"),
        ("exit 3", 3, "failed with exit code 3, as reported"),
        ("true", 0, "finished with exit code 0, as reported"),
        ("no-such-cmd-zz", 127, "failed with exit code 127, as reported"),
    ],
)
def test_an_end_has_its_true_exit_code(state, supervisor, command, code, words):
    ended = until_ended(start(state, command))

    assert (ended.status, ended.reason, ended.exit_code) == ("ended", "exited", code)
    assert ended.outcome == words
    assert ended.events.count() == 1
    assert facts.violations(state) == []


def test_output_is_kept_and_told(state, supervisor):
    ended = until_ended(start(state, "printf 'one\\ntwo\\033[31m red\\033[0m\\n'; echo err >&2"))

    assert ended.tail == "one\ntwo red\nerr\n"
    assert ended.events.get().body == ended.tail


def test_a_signal_from_outside_is_named(state, supervisor):
    process = until_runs(start(state, "exec sleep 60"))
    os.kill(process.pid, signal.SIGKILL)
    ended = until_ended(process)

    assert (ended.reason, ended.signal_number) == ("exited", 9)
    assert ended.outcome == "ended by SIGKILL from outside, as reported"


def test_a_time_limit_ends_it(state, supervisor):
    ended = until_ended(start(state, "sleep 60", limit_seconds=1))

    assert (ended.status, ended.reason) == ("ended", "timed_out")


def test_a_kill_takes_every_descendant(state, supervisor):
    command = (
        "sleep 301 & (setsid sleep 302 &) ; sh -c 'trap \"\" TERM; sleep 303' & sleep 304; wait"
    )
    process = until_runs(start(state, command))
    below = until(lambda: len(found := _sleeps()) >= 4 and found)
    began = time.monotonic()
    assert intake.ask_kill(process.pk, by=KillBy.PERSON, actor="me")
    ended = until_ended(process)

    assert (ended.reason, ended.kill_by) == ("killed", "person")
    assert time.monotonic() - began < 6
    assert [pid for pid in below if not gone(pid)] == []


def _sleeps() -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        name = path.name
        if name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if (
                words[:1] == [b"sleep"]
                and words[1:2]
                and words[1] in {b"301", b"302", b"303", b"304"}
            ):
                found.append(int(name))
    return found


def test_a_shell_that_leaves_while_its_child_holds_the_output_is_one_end(state, supervisor):
    began = time.monotonic()
    ended = until_ended(start(state, "echo first; (sleep 5; echo late) & exit 0"))

    assert time.monotonic() - began < 4
    assert (ended.exit_code, ended.tail) == (0, "first\n")
    assert ended.events.count() == 1


def test_an_end_while_nobody_looked_has_its_exit_code(state, supervisor):
    process = until_runs(start(state, "sleep 0.5; echo back; exit 7"))
    supervisor.end()
    until(lambda: Folder.of(process.uid).exit())
    assert row(process).status == "running"
    at = time.time()
    supervisor.start()
    ended = until_ended(process)

    assert (ended.status, ended.exit_code, ended.tail) == ("ended", 7, "back\n")
    assert ended.ended_at.timestamp() <= at


def test_a_running_one_is_adopted_over_two_restarts(state, supervisor):
    process = until_runs(start(state, "sleep 1.5; exit 4"))
    for _ in range(2):
        supervisor.end()
        supervisor.start()
    ended = until_ended(process)

    assert ended.exit_code == 4
    assert ended.events.count() == 1


def test_without_its_shim_it_is_lost_once_and_ended(state, supervisor, allow_errors):
    process = until_runs(start(state, "exec sleep 60"))
    shim = Folder.of(process.uid).shim()
    os.kill(shim.pid, signal.SIGKILL)
    ended = until_ended(process)

    assert (ended.status, ended.reason, ended.exit_code) == ("lost", "vanished", None)
    assert "unknown" in ended.outcome
    assert ended.events.count() == 1
    until(lambda: gone(process.pid))


def test_without_its_shim_nothing_that_it_left_runs_on(state, supervisor, allow_errors):
    command = "sleep 301 & (setsid sleep 302 &) ; sh -c 'trap \"\" TERM; sleep 303' & sleep 304"
    process = until_runs(start(state, command))
    below = until(lambda: len(found := _sleeps()) >= 4 and found)
    os.kill(Folder.of(process.uid).shim().pid, signal.SIGKILL)
    ended = until_ended(process)

    assert ended.status == "lost"
    until(lambda: all(gone(pid) for pid in below))


def test_a_recycled_pid_is_not_signalled(state, supervisor, allow_errors):
    import subprocess

    stranger = subprocess.Popen(["sleep", "999"])
    try:
        session = state.chat
        process = facts.add_process(
            state,
            host=os.uname().nodename,
            boot_id=files_boot(),
            pid=stranger.pid,
            pid_start="1",
            imported={"from": "elsewhere"},
            command="sleep 60",
        )
        assert session
        intake.ask_kill(process.pk, by=KillBy.PERSON)
        ended = until_ended(process)

        assert ended.reason in {"killed", "vanished"}
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def files_boot() -> str:
    from hermes.lib.leases import Owner

    return Owner.me().boot


def test_another_boot_is_lost_and_said_once(state, supervisor, allow_errors):
    process = until_runs(start(state, "exec sleep 60"))
    pid = process.pid
    ProcessRecord.objects.filter(pk=process.pk).update(boot_id="an earlier boot")
    ended = until_ended(process)

    assert (ended.status, ended.reason) == ("lost", "rebooted")
    assert ended.events.count() == 1
    os.kill(pid, signal.SIGKILL)


def test_a_claim_without_a_shim_is_started_by_the_next_run(state, places):
    process = start(state, "exit 5")
    first = Supervisor()
    assert intake.claim(process.pk, host=first.host, boot_id=first.boot, sandbox="none")
    second = Supervisor()
    until(lambda: second.look() is not None and not row(process).is_active)

    assert row(process).exit_code == 5


@pytest.mark.skipif(sandbox.levels() == [sandbox.Level.NONE], reason="nothing confines here")
def test_a_confined_child_cannot_have_written_its_own_exit_code(state, supervisor, settings):
    settings.HERMES_SANDBOX = "auto"
    ended = until_ended(start(state, "exit 3"))

    assert ended.outcome == "failed with exit code 3"


def test_big_output_is_capped_and_its_ends_are_kept(state, supervisor, settings):
    settings.HERMES_PROCESS_OUTPUT_BYTES = 64 * 1024
    ended = until_ended(start(state, "echo begin; yes 0123456789 | head -c 30000000; echo end"), 60)
    folder = Folder.of(ended.uid)
    kept = sum(path.stat().st_size for path in folder.path.glob("log*"))
    text = folder.output().text

    assert kept <= 64 * 1024
    assert ended.output_bytes == 30_000_010
    assert text.startswith("begin\n")
    assert text.endswith("end\n")
    assert "bytes not kept" in text
    assert ended.tail.endswith("end\n")


@pytest.mark.timeout(600)
def test_endless_output_costs_no_memory(state, supervisor):
    """A gigabyte (less in the small size), text and binary at once: capped, and nobody grows."""
    each = 2**30 // 2 if os.environ.get("HERMES_TEST_SIZE") == "full" else 2**26
    before = _resident(os.getpid())
    commands = (f"yes 0123456789 | head -c {each}", f"head -c {each} /dev/zero")
    processes = [until_runs(start(state, f"sleep 1; {command}; echo end")) for command in commands]
    shims = [Folder.of(process.uid).shim().pid for process in processes]
    most = 0
    while any(row(process).is_active for process in processes):
        most = max(most, *(_resident(pid) for pid in shims))
        time.sleep(0.05)
    ended = [row(process) for process in processes]

    print(f"\noutput: {2 * each >> 20} MiB, a shim took {most >> 20} MiB at most")
    assert [one.output_bytes for one in ended] == [each + 4, each + 4]
    assert 0 < most < 64 << 20
    assert _resident(os.getpid()) - before < 64 << 20
    for one in ended:
        assert sum(path.stat().st_size for path in Folder.of(one.uid).path.glob("log*")) <= 1 << 20
    assert ended[0].tail.endswith("end\n")
    assert ended[1].tail == f"(not text: {each + 4} bytes)\n"


def _resident(pid: int) -> int:
    """Bytes of memory that a process has; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_binary_output_is_said_to_be_none(state, supervisor):
    ended = until_ended(start(state, "head -c 5000 /dev/urandom"))

    assert ended.tail == "(not text: 5000 bytes)\n"


def test_a_secret_is_redacted_before_anything_is_cut(state, supervisor):
    from hermes.lib.redaction import live

    live.add("canary-secret-value")
    ended = until_ended(start(state, "echo canary-secret-value; echo sk-abcdefghijklmnopqrstuv"))

    assert ended.tail == "[redacted]\n[redacted]\n"
    assert "canary" not in ended.events.get().body


def test_the_environment_is_a_few_names(state, supervisor, monkeypatch):
    monkeypatch.setenv("HERMES_SECRET_THING", "x")
    ended = until_ended(start(state, "env | cut -d= -f1 | sort | tr '\\n' ' '"))

    names = set(ended.tail.split())
    assert names <= {
        "HOME",
        "LANG",
        "PATH",
        "PWD",
        "SHELL",
        "TERM",
        "TMPDIR",
        "USER",
        "_",
        "AGENT_PROCESS",
        "OLDPWD",
        "SHLVL",
    }


def test_a_terminal_takes_input(state, supervisor):
    process = until_runs(
        start(state, "read line; echo got:$line; test -t 1 && echo tty", wants_pty=True)
    )
    assert intake.send_input(process.pk, call_id="c", text="hello\n")
    assert intake.send_input(process.pk, call_id="c", text="hello\n")
    ended = until_ended(process)

    assert "got:hello" in ended.tail
    assert "tty" in ended.tail
    assert ended.tail.count("got:") == 1


def test_what_is_typed_before_it_runs_is_kept_until_it_does(state, places):
    process = start(state, "read -r word; echo got $word", wants_pty=True)
    assert intake.send_input(process.pk, call_id="1", text="early\n")
    supervisor = Supervisor()
    supervisor.look()
    assert process.inputs.get().sent_at is None

    def ended():
        supervisor.look()
        return not row(process).is_active

    until(ended)
    assert "got early" in row(process).tail


def test_one_taken_back_before_it_began_never_runs(state, places):
    process = start(state, "touch ran")
    assert intake.ask_kill(process.pk, by=KillBy.PERSON)
    ended = row(process)

    assert (ended.status, ended.reason) == ("failed_start", "handed_back")


def test_a_directory_outside_the_workspace_is_refused(state, supervisor):
    outside = files.workspace_of(state.chat.key) / "link"
    outside.symlink_to("/etc")
    for cwd in ("../..", "/etc", "link"):
        ended = until_ended(start(state, "ls", cwd=cwd))
        assert (ended.status, ended.reason) == ("failed_start", "not_started"), cwd


def test_nothing_runs_below_the_accepted_level(state, supervisor, settings):
    settings.HERMES_SANDBOX_ACCEPTED = "bwrap"
    ended = until_ended(start(state, "true"))

    assert ended.status == "failed_start"
    assert "accepts the risk" in ended.detail
    assert sandbox.refusal()


@pytest.mark.parametrize("made", ["file", "link"])
def test_a_command_that_took_the_name_of_the_temporary_folder_stops_no_other(
    state, supervisor, made
):
    first = {"file": "rm -r .tmp; echo x > .tmp", "link": "rm -r .tmp; ln -s /nowhere .tmp"}[made]
    assert until_ended(start(state, first)).exit_code == 0
    assert until_ended(start(state, "echo done")).exit_code == 0


def test_what_the_machine_has_no_room_for_is_told(state, supervisor, places):
    (files.root() / "p-no-room").write_text("")  # where its folder would be
    found = until_ended(start(state, "echo done", uid="p-no-room"))
    (files.root() / "p-no-room").unlink()
    assert (found.status, found.detail) == ("failed_start", "the machine refused: File exists")


def test_one_that_cannot_be_followed_holds_up_no_other(state, supervisor, allow_errors):
    odd = start(state, "sleep 60")
    until_runs(odd)
    folder = Folder.of(odd.uid)
    (folder.path / "exit.json").write_text('{"why": "", "ended_at": "yesterday"}')
    try:
        assert until_ended(start(state, "echo done")).exit_code == 0
        assert row(odd).status == "running"
    finally:
        (folder.path / "exit.json").unlink()


def test_a_full_disk_costs_output_and_no_exit_code(state, supervisor):
    place = files.root() / "p-full-disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        command = "head -c 300000 /dev/zero | tr '\\0' x; exit 7"
        process = start(state, command, uid="p-full-disk")
        child = until(lambda: Folder(place).child())
        until(lambda: not child.is_alive())
        time.sleep(0.5)  # what was wrong showed within that time
        assert row(process).is_active
        os.truncate(place / "log", 0)
        assert until_ended(process).exit_code == 7
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
