"""HTTP over a line: the key, the headers and the bytes that may pass.

What leaves is what the protocol needs and no more: variables of the environment that the SDK
reads (custom headers, organisation, proxies) do not reach a provider they were not meant for.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2
import httpx2

from .outbound_line import Broken, Line, Unreachable

_SENT: Final = frozenset(
    {"host", "content-type", "content-length", "transfer-encoding", "accept", "user-agent"}
)


class TooMuch(Exception):
    """More bytes came than may."""


class NotHTTP(Exception):
    """What came is not HTTP, or not in a form that was asked for."""


@functools.cache
def _tls() -> ssl.SSLContext:
    # Once a process: reading the trusted certificates takes longer than a connection. Of the
    # environment only SSL_CERT_FILE and SSL_CERT_DIR count: how an authority of one's own is named.
    return httpx2.create_ssl_context(trust_env=True)


class Transport(httpx2.BaseTransport):
    """The transport of one call.

    ``body_bytes`` bounds a good answer, ``error_bytes`` one that says why not; of the latter the
    rest is left unread.
    """

    def __init__(
        self,
        line: Line,
        *,
        key: str,
        body_bytes: int,
        error_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._key = key
        self._body_bytes = body_bytes
        self._error_bytes = error_bytes
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls or _tls(), max_connections=1, network_backend=line
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = [pair for pair in request.headers.raw if pair[0].lower().decode() in _SENT]
        headers.append((b"Accept-Encoding", b"identity"))
        headers.append((b"Connection", b"close"))
        if self._key:
            headers.append((b"Authorization", b"Bearer " + self._key.encode("ascii")))
        url = request.url
        with _named_failures(Unreachable):
            answer = self._pool.handle_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=headers,
                    content=request.stream,
                    # Seconds are measured by the line.
                    extensions={"timeout": {}},
                )
            )
        good = 200 <= answer.status < 300
        limit = self._body_bytes if good else self._error_bytes
        body = _Body(answer, limit, strict=good)
        response = httpx2.Response(answer.status, headers=answer.headers, stream=body)
        # Nobody asked for a coded body, and a small one can unfold into gigabytes.
        if response.headers.pop("content-encoding", "identity").strip().lower() != "identity":
            if good:
                body.close()
                raise NotHTTP("The answer is compressed, although it was not asked to be.")
            body.mute()
        return response

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    """The bytes of an answer, up to a limit."""

    def __init__(self, answer: httpcore2.Response, limit: int, *, strict: bool) -> None:
        self._answer = answer
        self._left = limit
        self._strict = strict

    def mute(self) -> None:
        """Let nothing of it through."""
        self._left = 0

    def __iter__(self) -> Iterator[bytes]:
        with _named_failures(Broken):
            for part in self._answer.iter_stream():
                if len(part) > self._left:
                    if self._strict:
                        raise TooMuch
                    yield part[: self._left]
                    return
                self._left -= len(part)
                yield part

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _named_failures(cut: type[Unreachable | Broken]) -> Iterator[None]:
    """Turn what ``httpcore2`` says of the protocol into words of ours; ``cut``: it just ended."""
    try:
        yield
    except httpcore2.RemoteProtocolError as error:
        text = str(error)
        if "disconnected" in text or "peer closed" in text:
            raise cut("The connection was closed before the answer was complete.") from None
        raise NotHTTP(f"The answer is not HTTP: {text[:200]}") from None
    except httpcore2.LocalProtocolError as error:
        raise NotHTTP(f"The request could not be put into words: {text_of(error)}") from None


def text_of(error: Exception) -> str:
    """The kind of an error and no more: its words may quote a header, and so the key."""
    return type(error).__name__
