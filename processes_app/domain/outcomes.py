"""How ends are told in words, and which commands and limits are let through."""

from __future__ import annotations

import fnmatch
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from typing import Final

from .states import KillBy, ProcessReason, ProcessStatus

KILLERS: Final = {
    KillBy.PERSON: "killed by the person",
    KillBy.OPERATOR: "killed by an operator",
    KillBy.AGENT: "killed by you",
    KillBy.TURN: "ended with the turn that it belonged to",
    KillBy.BOUNDARY: "ended because its chat or session was deleted",
}
LONGEST_NAME: Final = 1000
_BETWEEN: Final = re.compile(r"""[\s;&|<>()`'"\\=,]+""")
_INTERPRETER: Final = re.compile(
    r"^(?:.*/)?(?:\.|source|exec|env|make|node|deno|bun|php|lua|awk|sed|expect"
    r"|(?:ba|da|k|z|fi)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|Rscript)$"
)
_MODULE: Final = (".py", "/__main__.py")
_MAKEFILES: Final = ("Makefile", "makefile", "GNUmakefile")
_HOME: Final = re.compile(r"^(?:~/|\$HOME/|\$\{HOME\}/|/workspace/)")  # also the workspace
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
    >>> outcome(ProcessStatus.ENDED, ProcessReason.EXITED, exit_code=137)
    'failed with exit code 137 (SIGKILL)'
    >>> outcome(ProcessStatus.ENDED, ProcessReason.EXITED, exit_code=255)
    'failed with exit code 255'
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
    name = signal_name(exit_code - 128)  # as a shell tells of a child's signal
    if name.startswith("SIG"):
        return f"failed with exit code {exit_code} ({name})"
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


def paths_of(command: str) -> list[str]:
    """Whatever in a command may name a file or folder of the workspace, each once, in order.

    Words are taken out of quotes and substitutions too: a shell may run what stands there.

    >>> paths_of("cd tools && sh -c './a.py >out' ~/b $HOME/c /workspace/d")
    ['cd', 'tools', 'sh', '-c', './a.py', 'out', 'b', 'c', 'd']
    """
    words = (_HOME.sub("", word) for word in _BETWEEN.split(command))
    return list(dict.fromkeys(word for word in words if word and len(word) <= LONGEST_NAME))


def run_by_interpreters(names: Sequence[str]) -> list[str]:
    """What a command has another program run, by its names: whatever the file looks like.

    >>> run_by_interpreters(["sh", "-e", "job"]), run_by_interpreters(["ls", "job"])
    (['job'], [])
    >>> run_by_interpreters(["python3", "-m", "tools.build"])
    ['tools.build', 'tools/build.py', 'tools/build/__main__.py']
    >>> run_by_interpreters(["make", "all"])
    ['all', 'Makefile', 'makefile', 'GNUmakefile']
    """
    found: list[str] = []
    for place, name in enumerate(names):
        if not _INTERPRETER.match(name):
            continue
        behind = [each for each in names[place + 1 :] if not each.startswith("-")][:1]
        found += behind
        if "-m" in names[place + 1 : place + 4]:
            found += [f"{each.replace('.', '/')}{end}" for each in behind for end in _MODULE]
        if name == "make":
            found += _MAKEFILES
    return found
