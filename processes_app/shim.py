"""The keeper of one child: a script of its own, without Django, that outlives everybody else.

``python -S -E shim.py <folder>`` reads ``spec.json`` there and starts the child in a session of its
own. It owns the log and the file with the exit code, ends the child at its limit or on SIGTERM,
looks for what survives, and leaves. Whoever supervises reads these files, at any later time:

``shim.json``   who the shim is: pid and the kernel's start time
``child.json``  who the child is; written before the child may begin
``log*``        the first bytes of the output, and the last
``survivors``   something of the child could not be ended
``exit.json``   how it ended; written whole, once
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import select
import signal
import struct
import sys
import termios
import time
from typing import Any

TERM_SECONDS = 2.0
KILL_SECONDS = 3.0
DRAIN_SECONDS = 0.3
READ_BYTES = 65536
PR_SET_PDEATHSIG, PR_SET_SECCOMP = 1, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int = 0, more: Any = 0) -> bool:
    """Whether the kernel did it; False where there is no such call."""
    call = getattr(libc, "prctl", None)
    return call is not None and call(option, ctypes.c_ulong(value), more, 0, 0) == 0


def start_of(pid: int) -> str:
    """The kernel's start time of a process; empty if it is gone, a zombie or cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def parents() -> dict[int, int]:
    """The parent of every living process; empty where there is no /proc."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1])
    return found


def tasks_of_user() -> int:
    """How many processes and threads this user has, over the whole machine."""
    me, count = os.getuid(), 0
    for pid in parents():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == me:
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def descendants() -> list[int]:
    """Everything below this process. As a subreaper it inherits whoever loses a parent."""
    above = parents()
    found, ahead = [], [os.getpid()]
    while ahead:
        below = [pid for pid, parent in above.items() if parent in ahead]
        found += below
        ahead = below
    return found


class Log:
    """The first half of what is kept, and two pieces that hold at least the last quarter."""

    def __init__(self, folder: str, keep: int) -> None:
        self.folder, self.size = folder, 0
        self.head_room, self.piece = keep // 2, max(1, keep // 4)
        self.file = self._open("log")
        self.left = self.head_room
        self.pieces: list[str] = []

    def _open(self, name: str) -> int:
        path = os.path.join(self.folder, name)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def write(self, data: bytes) -> None:
        """Append; what lies between the beginning and the end is let go."""
        at = 0
        while at < len(data):
            if self.left == 0:
                self._turn_over()
            part = data[at : at + self.left]
            with contextlib.suppress(OSError):  # a full disk stops no child
                os.write(self.file, part)
            at += len(part)
            self.left -= len(part)
            self.size += len(part)

    def _turn_over(self) -> None:
        name = f"log.{self.size}"
        self.left = self.piece
        try:
            file = self._open(name)
        except OSError:  # a full disk again: what comes next has no place
            return
        os.close(self.file)
        self.file = file
        self.pieces.append(name)
        if len(self.pieces) > 2:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, self.pieces.pop(0)))


def keep_somehow(folder: str, name: str, value: Any) -> None:
    """Keep a value, however long the disk is full; not where the folder is gone."""
    while os.path.isdir(folder):
        try:
            keep(folder, name, value)
        except OSError:
            time.sleep(0.5)
        else:
            return


def keep(folder: str, name: str, value: Any) -> None:
    """Write a file whole or not at all, and on the disk before anything else happens."""
    path = os.path.join(folder, name)
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


# --- Inside the child ----------------------------------------------------------------------------


def confine(spec: dict[str, Any]) -> None:
    """Limits, no new privileges, and the rules of the level; the last thing before the command."""
    # The kernel counts all tasks of the user, whoever began them.
    limits = {**spec["limits"], "NPROC": spec["tasks"] + tasks_of_user()}
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(kind, (limit, limit))
    if not prctl(PR_SET_NO_NEW_PRIVS, 1) and sys.platform == "linux":
        raise OSError("no_new_privs was refused")
    if spec["level"] == "landlock":
        restrict_files(spec["readable"], spec["writable"])
        refuse_sockets()


READ, WRITE_ALL = 0b1101, (1 << 15) - 1
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446


def restrict_files(readable: list[str], writable: list[str]) -> None:
    """Landlock: files outside these are out of reach, and so are TCP and signals to others."""
    handled = WRITE_ALL | 1 << 15
    attributes = struct.pack("=QQQ", handled, 0b11, 0b11)
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock was refused")
    for paths, access in ((readable, READ), (writable, WRITE_ALL | 1 << 15)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            of_files = access & (0b111 | 1 << 14 | 1 << 15)
            rule = struct.pack("=Qi", access if os.path.isdir(path) else of_files, handle)
            if libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0) != 0:
                raise OSError(ctypes.get_errno(), f"landlock refused {path}")
            os.close(handle)
    if libc.syscall(LANDLOCK_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock was not applied")
    os.close(ruleset)


# By machine: the kernel's number for it, and those of socket, ptrace, process_vm_readv and
# process_vm_writev. io_uring_setup has one number everywhere.
MACHINES = {
    "x86_64": (0xC000003E, (41, 101, 310, 311)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271)),
}
IO_URING_SETUP = 425
LOAD, EQUAL, ABOVE, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL_PROCESS, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM


def refuse_sockets() -> None:
    """A filter of system calls: no socket of any kind can be made, no other process looked into."""
    arch, calls = MACHINES[platform.machine()]
    refused = (*calls, IO_URING_SETUP)
    lines = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, arch),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, 0),
        (ABOVE, 0, 1, 0x40000000),  # another numbering of the same calls
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    for place, number in enumerate(refused):
        lines.append((EQUAL, len(refused) - place, 0, number))
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(lines), ctypes.addressof(buffer))
    if not prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(program)):
        raise OSError(ctypes.get_errno(), "the filter of system calls was refused")


def become_child(spec: dict[str, Any], out: int, gate: int, trouble: int, shim: int) -> None:
    """Turn this forked process into the command; never returns."""
    try:
        os.setsid()
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGCHLD,
            signal.SIGPIPE,
        ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(125)
        if spec["pty"]:
            fcntl.ioctl(out, termios.TIOCSCTTY, 0)
            os.dup2(out, 0)
        else:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        last = 3
        for handle in (gate, trouble):  # these two are moved down, all others closed
            if handle != last:
                os.dup2(handle, last)
            os.set_inheritable(last, False)
            last += 1
        os.closerange(last, 65536)
        os.umask(0o077)
        os.chdir(spec["cwd"])
        confine(spec)
        if os.read(3, 1) != b"g":  # the shim died before it could write down who we are
            os._exit(125)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(4, f"{type(error).__name__}: {error}".encode()[:500])
    os._exit(126)


# --- The shim -------------------------------------------------------------------------------------


class Shim:
    """One child from its start to the file that says how it ended."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
            self.spec = json.load(file)
        self.log = Log(folder, self.spec["keep_bytes"])
        self.status: int | None = None  # of the child, once it has ended
        self.why = ""  # why we end it: killed, timed_out
        self.asked = False
        self.deadline = time.monotonic() + self.spec["seconds"]
        self.counts_at = time.monotonic() + 1
        self.reader, self.wakes = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.wakes, False)

    def run(self) -> None:
        """Start the child, keep it, and write down its end."""
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        keep(self.folder, "shim.json", {"pid": os.getpid(), "start": start_of(os.getpid())})
        started = time.time()
        problem = self._start()
        if problem:
            keep(self.folder, "exit.json", {"error": problem, "ended_at": time.time()})
            return
        self._watch()
        ended = time.time()
        survivors = self._end_rest()
        self._drain()
        result = os.waitstatus_to_exitcode(self.status or 0)
        value = {
            "code": result if result >= 0 else None,
            "signal": -result if result < 0 else None,
            "why": self.why,
            "started_at": started,
            "ended_at": ended,
            "bytes": self.log.size,
            "survivors": survivors,
        }
        keep_somehow(self.folder, "exit.json", value)

    def _note(self, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            keep(self.folder, "survivors", left)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def _start(self) -> str:
        """Fork the child; it begins once its identity is on the disk. Return what went wrong."""
        if self.spec["pty"]:
            self.out, inner = os.openpty()
            self.fifo = os.open(
                os.path.join(self.folder, "input"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )
        else:
            self.out, inner = os.pipe()
            self.fifo = -1
        gate, opens = os.pipe()
        told, trouble = os.pipe()
        shim = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            become_child(self.spec, inner, gate, trouble, shim)
        for handle in (inner, gate, trouble):
            os.close(handle)
        os.set_blocking(self.out, False)
        who = {"pid": self.child, "start": start_of(self.child), "started_at": time.time()}
        keep(self.folder, "child.json", who)
        with contextlib.suppress(OSError):
            os.write(opens, b"g")
        os.close(opens)
        problem = b""
        while part := os.read(told, 500):  # ends when the command runs: the pipe is closed by it
            problem += part
        os.close(told)
        if problem:
            os.waitpid(self.child, 0)
        return problem.decode(errors="replace")

    def _watch(self) -> None:
        """Keep its output until it has ended; end it at its limit, or when asked to."""
        kill_at = None
        while self.status is None:
            is_late = time.monotonic() >= self.deadline
            if kill_at is None and (self.asked or is_late or self._is_crowd()):
                self.why = "killed" if self.asked else "timed_out" if is_late else "too_many"
                self._send(signal.SIGTERM)
                kill_at = time.monotonic() + TERM_SECONDS
            if kill_at is not None and time.monotonic() >= kill_at:
                self._send(signal.SIGKILL)
                if time.monotonic() >= kill_at + KILL_SECONDS and self.status is None:
                    self._note(descendants())
            self._look(0.1 if kill_at is not None else 1.0)
            self._reap()

    def _is_crowd(self) -> bool:
        """Whether there are too many below; counted once a second, since it reads all of /proc."""
        if time.monotonic() < self.counts_at:
            return False
        self.counts_at = time.monotonic() + 1
        most: int = self.spec["tasks"]
        return len(descendants()) > most

    def _look(self, seconds: float) -> bool:
        """Wait for output, input or a signal; False if there is no more output to come."""
        handles = [self.reader] + [each for each in (self.out, self.fifo) if each >= 0]
        left = max(0.0, min(seconds, self.deadline - time.monotonic() if not self.why else seconds))
        ready, _, _ = select.select(handles, [], [], left)
        if self.reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.reader, 512)
        if self.fifo >= 0 and self.fifo in ready:
            with contextlib.suppress(OSError):
                os.write(self.out, os.read(self.fifo, 4096))
        if self.out >= 0 and self.out in ready:
            try:
                data = os.read(self.out, READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:  # a terminal whose other side is closed
                data = b""
            if not data:
                os.close(self.out)
                self.out = -1
                return False
            self.log.write(data)
        return self.out >= 0

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self.status = status

    def _send(self, number: int) -> None:
        """Signal the child's group, and whatever has left the group."""
        if self.status is None:  # once the child is reaped its number may be that of a stranger
            with contextlib.suppress(OSError):
                os.killpg(self.child, number)
        for pid in descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _end_rest(self) -> bool:
        """The child has ended; so does what it left. Whether something of it survives."""
        until = time.monotonic() + DRAIN_SECONDS
        while self.out >= 0 and time.monotonic() < until and self._look(0.05):
            self._reap()
        until = time.monotonic() + KILL_SECONDS
        while left := descendants():
            self._send(signal.SIGKILL)
            if time.monotonic() >= until:
                self._note(left)
                return True
            time.sleep(0.02)
            self._reap()
        return False

    def _drain(self) -> None:
        """What is in the pipe already still counts; nothing is waited for."""
        until = time.monotonic() + DRAIN_SECONDS
        while self.out >= 0 and time.monotonic() < until:
            ready, _, _ = select.select([self.out], [], [], 0)
            if not ready or not self._look(0):
                return


def main() -> None:
    """Keep the child of one folder, unless another shim has begun to."""
    folder = sys.argv[1]
    try:
        os.close(os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    Shim(folder).run()


if __name__ == "__main__":
    main()
