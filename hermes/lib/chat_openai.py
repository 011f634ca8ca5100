"""The adapter for every endpoint that speaks OpenAI's chat completions.

The official SDK builds the request, sends it and names what an endpoint refuses. Its reader of
the stream is not used, only the bytes behind it: it gives up at the first line that is no JSON,
ends quietly where a connection is cut, joins no data lines that belong to one event otherwise
than blindly, and bounds nothing. ``event_stream`` and ``answer`` do that here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import httpx2
import openai
from openai import OpenAI

from .answer import Answer
from .chat import (
    DEFAULT_LIMITS,
    ChatEvent,
    ChatModelError,
    ChatRequest,
    ErrorKind,
    Finished,
    Limits,
)
from .event_stream import EventDecoder, LineTooLong
from .outbound import BadAddress, Policy, parse_base_url
from .outbound_http import NotHTTP, TooMuch, Transport
from .outbound_line import Broken, Ended, Line, Overlong, Silence, Unreachable
from .provider_errors import WORDS_KEPT, Refusal, retry_after
from .redaction import redact
from .wire import wire, wire_tools

GRACE_SECONDS: Final = 5.0  # for what may follow the finish mark: usage, [DONE], the end
_KEY: Final = re.compile(r"[\x21-\x7e]*\Z")
# What some endpoints do not take, and what they take instead. Learned once, kept by the model.
_USAGE: Final = "stream_options"
_MAX_TOKENS: Final = "max_tokens"


class OpenAIChatModel:
    """A model behind an OpenAI-compatible endpoint.

    ``allowed_hosts`` names hosts that may be in a private network. ``tls`` replaces the trusted
    certificates.
    """

    def __init__(
        self,
        name: str,
        window: int,
        base_url: str,
        api_key: str,
        model: str,
        limits: Limits = DEFAULT_LIMITS,
        allow_loopback: bool = False,
        *,
        allowed_hosts: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.window = window
        self.base_url = base_url
        self.model = model
        self.limits = limits
        self.policy = Policy.of(allow_loopback=allow_loopback, allowed_hosts=allowed_hosts)
        self.tls = tls
        self.refused: set[str] = set()  # parameters that the endpoint has refused
        self._key = api_key.strip()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __getstate__(self) -> object:
        raise TypeError("A model holds a key and is not copied out of its process.")

    def open(self, request: ChatRequest) -> OpenAIChatStream:
        """Return the call, not yet connected."""
        return OpenAIChatStream(self, request, self._key)


class OpenAIChatStream:
    """One call; see ``ChatStream``."""

    def __init__(self, model: OpenAIChatModel, request: ChatRequest, key: str) -> None:
        self._model = model
        self._request = request
        self._key = key
        self._ended = False
        self._line: Line | None = None
        self._complete = False
        self._events = self._told()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._model.name!r}>"

    def __iter__(self) -> Iterator[ChatEvent]:
        yield from self._events
        if not self._complete:  # close() came between two events
            raise ChatModelError(ErrorKind.SHUT_DOWN)

    def shutdown(self) -> None:
        """Wake the reader at once; the iteration raises ``SHUT_DOWN``."""
        # The flag first, then the line; the reader sets the line first, then looks at the flag.
        self._ended = True
        if self._line is not None:
            self._line.shutdown()

    def close(self) -> None:
        """Give back the connection, wherever the call is."""
        self.shutdown()
        # Another thread that is in it right now has been woken, and closes on its way out.
        with suppress(ValueError):
            self._events.close()

    def _told(self) -> Generator[ChatEvent]:
        """Iterate and turn every failure into a ``ChatModelError`` without a secret in it."""
        try:
            for event in self._run():
                self._complete = isinstance(event, Finished)
                yield event
                if self._ended and not self._complete:
                    raise Ended
        except Exception as error:
            kind, words, wait = _told_apart(error, self._model.limits)
        else:
            return
        if self._ended:
            kind, words, wait = ErrorKind.SHUT_DOWN, "", None
        # Redacted before it is cut: half a key is still a secret, and no longer found. Not
        # chained: an error of the SDK carries the request, and a traceback could show it.
        words = redact(words, [self._key])
        words = words if len(words) <= WORDS_KEPT else f"{words[:WORDS_KEPT]} …"
        raise ChatModelError(kind, words, retry_after=wait)

    def _run(self) -> Iterator[ChatEvent]:
        if self._ended:
            raise Ended
        if not _KEY.match(self._key):
            raise ChatModelError(
                ErrorKind.AUTHENTICATION, "The key holds characters that no key has."
            )
        base = parse_base_url(self._model.base_url)
        limits = self._model.limits
        line = Line(
            base,
            self._model.policy,
            connect=limits.connect,
            idle=limits.idle,
            total=limits.total,
        )
        self._line = line
        if self._ended:
            raise Ended
        with ExitStack() as stack:
            parts = self._ask(base.url, line, stack)
            yield from _read(parts, line, limits)

    def _ask(self, url: httpx2.URL, line: Line, stack: ExitStack) -> Iterator[bytes]:
        """Send the request and return the bytes of the answer; ``stack`` gives them back."""
        while True:
            limits = self._model.limits
            transport = Transport(
                line,
                key=self._key,
                body_bytes=limits.body_bytes,
                error_bytes=limits.line_bytes,
                tls=self._model.tls,
            )
            http = stack.enter_context(httpx2.Client(transport=transport, trust_env=False))
            client = OpenAI(
                api_key="added-by-the-transport",
                base_url=url,
                http_client=http,
                max_retries=0,
                timeout=None,
            )
            try:
                response = stack.enter_context(
                    # What may be long goes in as it is: the client would copy every message and
                    # every argument key by key, which takes longer than sending them.
                    client.chat.completions.with_streaming_response.create(
                        model=self._model.model, messages=(), stream=True, extra_body=self._body()
                    )
                )
            except openai.APIStatusError as error:
                if self._learned(refusal := _refusal(error)):
                    http.close()
                    line.touch()
                    continue
                wait = retry_after(error.response.headers)
                raise ChatModelError(
                    refusal.kind(waits=wait is not None), refusal.words(), retry_after=wait
                ) from None
            except Silence:
                raise Unreachable(f"No answer within {limits.idle:g} seconds.") from None
            except Broken as error:
                raise Unreachable(str(error)) from None
            line.touch()
            raw: httpx2.Response = response.http_response
            return raw.iter_raw()

    def _body(self) -> dict[str, Any]:
        refused = self._model.refused
        body: dict[str, Any] = {"messages": wire(self._request.messages)}
        if _USAGE not in refused:
            body["stream_options"] = {"include_usage": True}
        if self._request.max_tokens is not None:
            new = _MAX_TOKENS in refused
            body["max_completion_tokens" if new else "max_tokens"] = self._request.max_tokens
        if self._request.tools:
            body["tools"] = wire_tools(self._request.tools)
        return body

    def _learned(self, refusal: Refusal) -> bool:
        """Whether the endpoint refused something that can be left out, and was not yet."""
        new = {
            option
            for option, names in (
                (_USAGE, ("stream_options", "include_usage")),
                (_MAX_TOKENS, ("max_tokens",)),
            )
            if option not in self._model.refused and refusal.names(*names)
        }
        if self._request.max_tokens is None or "max_completion_tokens" not in refusal.message:
            new.discard(_MAX_TOKENS)  # it was not sent, or the number is what was wrong
        self._model.refused |= new
        return bool(new)


def _read(parts: Iterator[bytes], line: Line, limits: Limits) -> Iterator[ChatEvent]:
    """Yield the events of an answer from its bytes."""
    answer = Answer()
    decoder = EventDecoder(limits.line_bytes)
    head: bytes | None = b""
    try:
        for part in parts:
            if head is not None:
                head += part
                start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
                if not start:
                    if len(head) > limits.line_bytes:
                        raise LineTooLong
                    continue
                if start[:1] in b"{[<":  # an event stream begins with the name of a field
                    yield from answer.whole(head, parts)
                    break
                part, head = head, None
            for event in decoder.feed(part):
                if answer.done:
                    break
                line.check()
                said = answer.take(event)
                yield from said
                if answer.understood:
                    line.touch()
                if answer.finished:
                    line.hurry(GRACE_SECONDS)
            if answer.done:
                break
        else:
            for event in decoder.end():
                yield from answer.take(event, last=True)
    except (Broken, Silence, Overlong, Unreachable, NotHTTP, TooMuch):
        # After the finish mark the answer is whole, however the connection ends.
        if not answer.finished:
            yield from answer.held()
            raise
    yield from answer.end()


def _refusal(error: openai.APIStatusError) -> Refusal:
    body: object
    try:
        body = error.response.json()
    except (ValueError, RecursionError):
        text = error.response.text
        body = "" if "<html" in text[:1000].lower() else text
    return Refusal.of(body, error.status_code)


def _told_apart(error: Exception, limits: Limits) -> tuple[ErrorKind, str, float | None]:
    if isinstance(error, ChatModelError):
        return error.kind, str(error), error.retry_after
    return *_kind_and_words(error, limits), None


def _kind_and_words(error: Exception, limits: Limits) -> tuple[ErrorKind, str]:
    match error:
        case Ended():
            return ErrorKind.SHUT_DOWN, ""
        case openai.APIConnectionError():
            return ErrorKind.UNREACHABLE, "The connection failed."
        case BadAddress():
            return ErrorKind.BLOCKED, str(error)
        case Unreachable():
            return ErrorKind.UNREACHABLE, str(error)
        case Silence():
            return ErrorKind.STALLED, f"Nothing came for {limits.idle:g} seconds."
        case Overlong():
            return ErrorKind.STALLED, f"The call took longer than {limits.total:g} seconds in all."
        case Broken():
            return ErrorKind.CUT, str(error)
        case TooMuch():
            return ErrorKind.MALFORMED, f"More than {limits.body_bytes} bytes came."
        case LineTooLong():
            return ErrorKind.MALFORMED, f"One line is longer than {limits.line_bytes} bytes."
        case NotHTTP():
            return ErrorKind.MALFORMED, str(error)
        case _:
            # Of an unknown error only the kind: its words may hold anything.
            return ErrorKind.MALFORMED, f"The call failed with {type(error).__name__}."
