"""How ends are told in words, and which commands and limits are let through."""

from __future__ import annotations

import fnmatch
import re
import shlex
import signal
from collections.abc import Iterable
from typing import Final

from .states import KillBy, ProcessReason, ProcessStatus

KILLERS: Final = {
    KillBy.PERSON: "killed by the person",
    KillBy.OPERATOR: "killed by an operator",
    KillBy.AGENT: "killed by you",
    KillBy.TURN: "ended with the turn that it belonged to",
    KillBy.BOUNDARY: "ended because its chat or session was deleted",
}
_SHELL: Final = re.compile(r"[;&|<>`$\n\\(){}*?\[\]!#~]")


def outcome(
    status: ProcessStatus,
    reason: ProcessReason | None,
    *,
    exit_code: int | None = None,
    signal_number: int | None = None,
    kill_by: KillBy | None = None,
    is_reported: bool = False,
) -> str:
    """The end of a process in words, the true one and no other.

    ``is_reported`` says that nothing kept the child from the file that tells its exit code, so
    that this is what was reported, and no more.

    >>> outcome(ProcessStatus.ENDED, ProcessReason.EXITED, exit_code=3)
    'failed with exit code 3'
    >>> outcome(ProcessStatus.ENDED, ProcessReason.EXITED, signal_number=9)
    'ended by SIGKILL from outside'
    >>> outcome(ProcessStatus.ENDED, ProcessReason.KILLED, kill_by=KillBy.PERSON)
    'killed by the person'
    >>> outcome(ProcessStatus.LOST, ProcessReason.REBOOTED)
    'lost: the machine was restarted while it ran; its outcome is unknown'
    >>> outcome(ProcessStatus.ENDED, ProcessReason.EXITED, exit_code=0, is_reported=True)
    'finished with exit code 0, as reported'
    """
    match status:
        case ProcessStatus.STARTING:
            return "is being started"
        case ProcessStatus.RUNNING:
            return "is running"
        case ProcessStatus.FAILED_START:
            if reason is ProcessReason.HANDED_BACK:
                return "was taken back before it began"
            return "could not be started"
        case ProcessStatus.LOST:
            if reason is ProcessReason.REBOOTED:
                return "lost: the machine was restarted while it ran; its outcome is unknown"
            return "lost: it is gone and nobody saw how; its outcome is unknown"
        case ProcessStatus.ENDED:
            pass
    if reason is ProcessReason.KILLED:
        return KILLERS[kill_by] if kill_by is not None else "killed"
    if reason is ProcessReason.TIMED_OUT:
        return "ended at its time limit"
    if reason is ProcessReason.TOO_MANY:
        return "ended because it made too many processes"
    return f"{_code(exit_code, signal_number)}{', as reported' if is_reported else ''}"


def _code(exit_code: int | None, signal_number: int | None) -> str:
    if signal_number is not None:
        return f"ended by {signal_name(signal_number)} from outside"
    if exit_code is None:
        return "ended without an exit code"
    if exit_code == 0:
        return "finished with exit code 0"
    if exit_code > 128:  # as a shell tells of a child's signal
        return f"failed with exit code {exit_code} ({signal_name(exit_code - 128)})"
    return f"failed with exit code {exit_code}"


def process_key(uid: str) -> str:
    """What a turn waits for that waits for a process.

    >>> process_key("p1")
    'process:p1'
    """
    return f"process:{uid}"


def approval_key(pk: int) -> str:
    """What a turn waits for that waits for an approval.

    >>> approval_key(7)
    'approval:7'
    """
    return f"approval:{pk}"


def signal_name(number: int) -> str:
    """A signal as people write it.

    >>> signal_name(15), signal_name(99)
    ('SIGTERM', 'signal 99')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_listed(command: str, allowed: Iterable[str]) -> bool:
    """Whether a command is on the operators' list: plain words only, matched as a whole.

    >>> is_listed("git status", ["git status", "ls *"]), is_listed("ls -la", ["ls *"])
    (True, True)
    >>> is_listed("ls -la; rm -r x", ["ls *"]), is_listed("lsof", ["ls"])
    (False, False)
    """
    if _SHELL.search(command):  # the shell would make something else of it
        return False
    try:
        plain = " ".join(shlex.split(command))
    except ValueError:
        return False
    return any(fnmatch.fnmatchcase(plain, pattern) for pattern in allowed)


def script_of(command: str) -> str | None:
    """The file that a command runs, as it is written; None if it names none that could be one.

    >>> script_of("python3 tools/build.py --all"), script_of("./run.sh"), script_of("ls -la")
    ('tools/build.py', './run.sh', None)
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    for word in words[:4]:
        if "/" in word or re.search(r"\.(?:sh|py|js|rb|pl|mjs|ts|bash)$", word):
            return word
    return None
