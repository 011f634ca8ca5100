"""One outbound connection that any thread can end at any time.

A :class:`Line` holds the deadlines and the socket of one call. It plugs into ``httpcore2`` as its
network backend, so that every wait of the call (looking the name up, connecting, the TLS
handshake, writing, reading) is measured here and woken here.
"""

from __future__ import annotations

import errno
import functools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from typing import Any, Final

import httpcore2

from .outbound import IP, BaseURL, Policy, Resolved, check_addresses, resolve

_SLICE: Final = 0.1  # seconds; how long a connect goes on unseen where shutdown() cannot wake it


class Ended(Exception):
    """``shutdown()`` was called."""


class Unreachable(Exception):
    """No connection came about."""


class Silence(Exception):
    """Nothing came for longer than allowed."""


class Overlong(Exception):
    """The call took longer than it may in all."""


class Broken(Exception):
    """The connection broke after it had come about."""


class Line(httpcore2.NetworkBackend):
    """The network of one call; every method but ``shutdown`` belongs to the thread that reads.

    ``connect``, ``idle`` and ``total`` are seconds. ``idle`` counts from the last ``touch()``.
    """

    def __init__(
        self, base: BaseURL, policy: Policy, *, connect: float, idle: float, total: float
    ) -> None:
        self._base = base
        self._policy = policy
        self._connect = connect
        self._idle = idle
        self._end = time.monotonic() + total
        self._quiet_end = self._end
        self._lock = threading.Lock()
        self._ended = False
        self._lookup: Resolved | None = None
        self._socket: socket.socket | None = None
        self.touch()

    @property
    def host(self) -> str:
        """The host that a certificate must be for."""
        return self._base.host

    def touch(self) -> None:
        """Begin to count the silence anew."""
        self._quiet_end = time.monotonic() + self._idle

    def hurry(self, seconds: float) -> None:
        """Allow at most this much more silence."""
        self._idle = min(self._idle, seconds)
        self.touch()

    def check(self) -> None:
        """Raise ``Ended`` or ``Overlong`` where the call is not to go on."""
        if self._ended:
            raise Ended
        if time.monotonic() >= self._end:
            raise Overlong

    def remaining(self) -> float:
        """Seconds that the next wait may take, more than 0; else it raises what is over."""
        self.check()
        seconds = min(self._end, self._quiet_end) - time.monotonic()
        if seconds <= 0:
            raise Silence
        return seconds

    def over(self) -> Exception:
        """What a wait that ran out of time means."""
        return Overlong() if time.monotonic() >= self._end else Silence()

    def shutdown(self) -> None:
        """End the call and wake whoever waits in it; from any thread, at any time."""
        with self._lock:
            self._ended = True
            if self._lookup is not None:
                self._lookup.cancel()
            if self._socket is not None:
                # Not close(): that wakes no reader, and gives the number of the file to others.
                # Not the method of SSLSocket: it takes the TLS object away from under the reader.
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def hold(self, sock: socket.socket | None) -> None:
        """Make ``sock`` the one that ``shutdown()`` wakes; raise ``Ended`` if it came before."""
        with self._lock:
            self._socket = sock
            if self._ended and sock is not None:
                raise Ended

    def close(self, sock: socket.socket) -> None:
        """Close ``sock``; ``shutdown()`` does not touch its number afterwards."""
        with self._lock:
            if self._socket is sock:
                self._socket = None
            sock.close()

    # httpcore2 calls these ---------------------------------------------------------------------

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to an address of the base URL that was judged a moment ago."""
        end = min(time.monotonic() + self._connect, self._end)
        addresses = self._addresses(end)
        check_addresses(self._base, addresses, self._policy)
        failure: Exception = Unreachable("The name has no address.")
        for number, address in enumerate(addresses):
            # Each address gets its share, so that a dead first one leaves time for the next.
            now = time.monotonic()
            share = now + max(0.0, end - now) / (len(addresses) - number)
            try:
                sock = self._connected(address, share)
            except Unreachable as error:
                failure = error
                continue
            self.touch()
            return LineStream(self, sock, end)
        raise failure

    def _addresses(self, end: float) -> list[IP]:
        with self._lock:
            if self._ended:
                raise Ended
            self._lookup = resolve(self._base)
            lookup = self._lookup
        try:
            return lookup.result(max(0.0, end - time.monotonic()))
        except CancelledError:
            raise Ended from None
        except WaitedTooLong:
            raise Unreachable("The name was not found in time.") from None
        except OSError as error:
            raise Unreachable(str(error)) from None
        finally:
            self.check()

    def _connected(self, address: IP, end: float) -> socket.socket:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.hold(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            code = sock.connect_ex((str(address), self._base.port))
            if code not in {0, errno.EINPROGRESS, errno.EWOULDBLOCK}:
                raise Unreachable(_words(code))
            while code and not self._writable(sock):
                self.check()
                if time.monotonic() >= end:
                    raise Unreachable("No answer to the attempt to connect.")
            self.check()
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise Unreachable(_words(code))
        except BaseException:
            self.close(sock)
            raise
        return sock

    def _writable(self, sock: socket.socket) -> bool:
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        return bool(poll.poll(_SLICE * 1000))


class LineStream(httpcore2.NetworkStream):
    """The connected socket of a :class:`Line`, as ``httpcore2`` wants it."""

    def __init__(self, line: Line, sock: socket.socket, connect_end: float) -> None:
        self._line = line
        self._socket = sock
        self._connect_end = connect_end  # the TLS handshake is part of connecting

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._waiting(functools.partial(self._socket.recv, max_bytes))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._waiting(functools.partial(self._socket.send, view)) :]
        except Broken as error:
            # A server may answer and hang up before it has read all: httpcore2 then reads on.
            raise httpcore2.WriteError(str(error)) from None

    def _waiting(self, action: Callable[..., Any]) -> Any:
        self._socket.settimeout(self._line.remaining())
        try:
            result = action()
        except TimeoutError:
            self._line.check()
            raise self._line.over() from None
        except OSError as error:
            self._line.check()
            raise Broken(_words(error.errno)) from None
        self._line.check()
        return result

    def close(self) -> None:
        self._line.close(self._socket)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """Shake hands; the certificate must be one for the host of the base URL."""
        plain = self._socket
        try:
            plain.settimeout(max(0.001, self._connect_end - time.monotonic()))
            # wrap_socket moves the file to a new object: until that one is held, shutdown() has
            # nothing to wake, and hold() says so.
            self._line.hold(None)
            secure = ssl_context.wrap_socket(
                plain, server_hostname=self._line.host, do_handshake_on_connect=False
            )
            self._socket = secure
            self._line.hold(secure)
            secure.do_handshake()
        except TimeoutError:
            self._fail_tls("No answer to the attempt to set up TLS.")
        except ssl.SSLCertVerificationError as error:
            self._fail_tls(f"The certificate is not trusted: {error.verify_message}.")
        except ssl.SSLError as error:
            self._fail_tls(f"TLS could not be set up: {error.reason or 'the connection ended'}.")
        except (OSError, ValueError) as error:
            self._fail_tls(f"TLS could not be set up: {type(error).__name__}.")
        except BaseException:
            self.close()
            raise
        self._line.check()
        self._line.touch()
        return self

    def _fail_tls(self, words: str) -> None:
        self.close()
        self._line.check()
        raise Unreachable(words)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return False  # a line carries one call and is never taken up again
        if info == "ssl_object" and isinstance(self._socket, ssl.SSLSocket):
            return self._socket
        return None


def _words(code: int | None) -> str:
    """An error number of the system in its short English form."""
    known = {
        errno.ECONNREFUSED: "Nobody listens there: connection refused.",
        errno.EHOSTUNREACH: "There is no way to this host.",
        errno.ENETUNREACH: "There is no way to this network.",
        errno.ECONNRESET: "The connection was reset.",
        errno.EPIPE: "The connection was closed.",
    }
    return known.get(code or 0, f"The connection failed ({errno.errorcode.get(code or 0, '?')}).")
