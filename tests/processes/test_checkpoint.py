"""A checkpoint file of any content: what is ours is restored, all else is told in a line."""

from __future__ import annotations

import json
import os
import subprocess
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from hermes.lib.leases import process_start
from processes_app.models import ProcessRecord

pytestmark = [pytest.mark.django_db, pytest.mark.process]


@pytest.fixture
def entry():
    child = subprocess.Popen(["/bin/sleep", "60"])
    yield {
        "session_id": "proc_1",
        "command": "sleep 60",
        "pid": child.pid,
        "pid_scope": "host",
        "host_start_time": float(process_start(child.pid)),
        "started_at": 1_700_000_000.0,
        "session_key": "agent:main:x",
        "notify_on_complete": True,
    }
    child.kill()
    child.wait()


def restore(tmp_path, content: str | bytes) -> str:
    path = tmp_path / "processes.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = StringIO()
    call_command("import_checkpoint", str(path), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "7", '"x"', "{}", '{"other": []}', b"\xff\xfe", "[" * 100_000],
)
def test_a_file_that_is_none_is_one_clear_error(tmp_path, content):
    with pytest.raises(CommandError) as told:
        restore(tmp_path, content)
    assert "Traceback" not in str(told.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CommandError):
        call_command("import_checkpoint", str(tmp_path / "nothing"))
    with pytest.raises(CommandError):
        call_command("import_checkpoint", str(tmp_path))


@pytest.mark.parametrize(
    "odd",
    [
        {"session_id": "../../etc"},
        {"session_id": "a/b"},
        {"session_id": ".."},
        {"session_id": "a\nb"},
        {"session_id": 7},
        {"session_id": "x" * 41},
        {"command": None},
        {"pid": "many"},
        {"pid": -5},
        {"pid": 10**30},
        {"pid": True},
        {"pid": [1]},
        {"pid_scope": "container\n\x1b[31m"},
        {"host_start_time": "NaN"},
        {"host_start_time": 1.0},
        {"started_at": "yesterday"},
        {"started_at": 1e300},
        {"watcher_interval": 1e300},
        {"watcher_interval": float("inf")},
        {"watcher_interval": float("nan")},
    ],
)
def test_an_odd_entry_is_left_out_and_the_rest_is_restored(tmp_path, entry, odd):
    told = restore(tmp_path, json.dumps([{**entry, **odd}, 7, {**entry, "session_id": "proc_2"}]))
    assert told.splitlines()[0] == "restored 1, skipped 2"
    assert len(told.splitlines()) == 3
    assert "\x1b" not in told
    assert list(ProcessRecord.objects.values_list("uid", flat=True)) == ["proc_2"]


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_what_no_database_can_hold_is_shown_as_such(tmp_path, entry, odd):
    names = ("command", "cwd", "session_key", "parent_session_id", "watcher_x")
    told = restore(tmp_path, json.dumps({"processes": [{**entry, **dict.fromkeys(names, odd)}]}))
    assert told.startswith("restored 1, skipped 0")
    row = ProcessRecord.objects.get()
    assert (row.command, row.origin_session) == ("a\ufffdb", "a\ufffdb")
    assert row.imported == {"watcher_x": "a\ufffdb"}


def test_a_process_named_twice_is_restored_once(tmp_path, entry):
    assert restore(tmp_path, json.dumps([entry, entry])).startswith("restored 1, skipped 1")
    assert restore(tmp_path, json.dumps([entry])).startswith("restored 0, skipped 1")


def test_a_fifo_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CommandError, match="no file"):
        call_command("import_checkpoint", str(tmp_path / "pipe"))
