"""Server-sent events out of bytes, however they were cut on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final


class LineTooLong(Exception):
    """One line, or the data of one event, is longer than allowed."""


@dataclass(frozen=True)
class Event:
    """One event; ``data`` are its data lines, at least one."""

    data: tuple[str, ...]
    name: str = ""


_BREAK: Final = re.compile(rb"\r\n|\n|\r")


@dataclass
class EventDecoder:
    """Takes bytes as they come and gives whole events.

    Lines end in LF, CR or CRLF. Comments, blank lines without data and unknown fields are legal
    and mean nothing.

    >>> decoder = EventDecoder()
    >>> [list(decoder.feed(part)) for part in (b"data: a", b"b\\r", b"\\n\\r\\n")]
    [[], [], [Event(data=('ab',), name='')]]
    """

    limit: int = 1024 * 1024  # bytes
    _rest: bytearray = field(default_factory=bytearray)
    _searched: int = 0  # so much of the rest holds no line break
    _data: list[str] = field(default_factory=list)
    _size: int = 0
    _name: str = ""
    _begun: bool = False

    def feed(self, part: bytes) -> Iterator[Event]:
        """Take the next bytes; yield the events that they complete."""
        self._rest += part
        position = 0
        while found := _BREAK.search(self._rest, max(position, self._searched)):
            # A CR at the very end may be the first half of a CRLF: wait for the next byte.
            if found[0] == b"\r" and found.end() == len(self._rest):
                self._searched = found.start()
                break
            line = bytes(self._rest[position : found.start()])
            position = found.end()
            self._searched = position
            if event := self._line(line):
                yield event
        else:
            self._searched = len(self._rest)
        del self._rest[:position]
        self._searched -= position
        if len(self._rest) > self.limit:
            raise LineTooLong

    def end(self) -> Iterator[Event]:
        """No more bytes come: yield what was not closed by a blank line."""
        rest, self._rest = bytes(self._rest).removesuffix(b"\r"), bytearray()
        self._searched = 0
        for line in (rest, b""):
            if event := self._line(line):
                yield event

    def _line(self, line: bytes) -> Event | None:
        if len(line) > self.limit:
            raise LineTooLong
        if not self._begun:
            line, self._begun = line.removeprefix(b"\xef\xbb\xbf"), True
        if not line:
            event = Event(tuple(self._data), self._name) if self._data else None
            self._data, self._size, self._name = [], 0, ""
            return event
        name, _, value = line.partition(b":")
        # A line is cut at ASCII bytes only, so a character of several bytes is whole in it.
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._size += len(value)
            if self._size > self.limit:
                raise LineTooLong
            self._data.append(text)
        elif name == b"event":
            self._name = text
        return None
