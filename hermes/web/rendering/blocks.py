"""A growing text as blocks that are final, and the piece behind them that is still open.

A block ends where, outside a fence, a blank line is followed by the start of a line that does not
go on with the block. What a line is, its first signs decide: the same text gives the same blocks
however it is cut into pieces, and a closed block is never looked at again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from . import markdown

TEXT_LIMIT: Final = 512 * 1024  # code points that are read as Markdown; what follows is plain text
BLOCK_LIMIT: Final = 4_000  # blocks of one text; what follows is one block
_PREFIX: Final = 64  # signs of a line that decide whether it begins a block
_CONTAINERS: Final = 20  # quotes and lists that one line may open

_MARKER: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t\r\n])")
_HALF_MARKER: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)]?)\Z")
_ITEM: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+|$)")
_QUOTE: Final = re.compile(r"[ \t]{0,3}>[ \t]?")
_RULE: Final = re.compile(r"[ \t]{0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_FENCE: Final = re.compile(r"(`{3,})[^`]*|(~{3,}).*", re.DOTALL)
_DEFINITION: Final = re.compile(r"^ {0,3}\[[^\]\n]+\]:", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A closed piece of a text: the ``k``-th, code points ``start`` to ``end``, and its HTML."""

    k: int
    start: int
    end: int
    html: str


@dataclass
class _Fence:
    """An open fence of code, and what of its surroundings would end it."""

    sign: str
    length: int
    quotes: int
    indent: int  # of the list item that it stands in, 0 for none


def _indent(line: str) -> int:
    width = 0
    for sign in line:
        if sign == " ":
            width += 1
        elif sign == "\t":
            width += 4 - width % 4
        else:
            break
    return width


class BlockSplitter:
    """Takes a text in pieces and gives back the blocks that have closed.

    ``closed`` counts them, ``end`` is where the last one ends, ``open`` is the text behind it.
    """

    def __init__(self) -> None:
        self.closed = 0
        self.end = 0
        self._lines: list[str] = []  # whole lines of the open block
        self._size = 0  # their code points
        self._line: list[str] = []  # pieces of the line that is not whole yet
        self._prefix = ""
        self._is_decided = False
        self._reset()

    def _reset(self) -> None:
        self._has_content = False
        self._is_list = False
        self._is_indented = False
        self._after_blank = False
        self._fence: _Fence | None = None

    @property
    def open(self) -> str:
        """The text behind the last closed block."""
        return "".join(self._lines) + "".join(self._line)

    def feed(self, text: str) -> list[Block]:
        """Take more text; return the blocks that closed by it, in order."""
        return [
            Block(k, start, start + len(source), markdown.render(source))
            for k, start, source in self.feed_sources(text)
        ]

    def feed_sources(self, text: str) -> list[tuple[int, int, str]]:
        """The same, unrendered: number, start and source of each block."""
        found: list[tuple[int, int, str]] = []
        at = 0
        while at < len(text):
            if self._is_full():
                self._lines.append(text[at:])
                break
            cut = text.find("\n", at) + 1
            is_whole = cut > 0
            piece = text[at : cut or len(text)]
            at += len(piece)
            self._line.append(piece)
            if len(self._prefix) < _PREFIX:
                self._prefix = (self._prefix + piece)[:_PREFIX]
            if not self._is_decided:
                begins = self._begins_block(is_whole=is_whole)
                self._is_decided = begins is not None
                if begins:
                    found.append(self._close())
            if is_whole:
                self._take_line("".join(self._line))
                self._line, self._prefix, self._is_decided = [], "", False
        return found

    def _is_full(self) -> bool:
        """Whether no block is going to close any more: at the start of a line, beyond a limit."""
        is_beyond = self.end + self._size > TEXT_LIMIT or self.closed >= BLOCK_LIMIT
        return is_beyond and not self._line

    def _close(self) -> tuple[int, int, str]:
        source = "".join(self._lines)
        block = (self.closed, self.end, source)
        self.closed += 1
        self.end += len(source)
        self._lines, self._size = [], 0
        self._reset()
        return block

    def _begins_block(self, *, is_whole: bool) -> bool | None:
        """Whether the present line begins a block; None while its first signs leave that open."""
        if not self._after_blank or not self._has_content or self._fence is not None:
            return False
        rest = self._prefix.lstrip(" \t\r\n")
        if not rest:
            return None if len(self._prefix) < _PREFIX else False
        indent = _indent(self._prefix)
        if self._is_list:
            if indent >= 2 or _MARKER.match(rest):
                return False
            if not is_whole and _HALF_MARKER.match(rest):
                return None
            return True
        return not (self._is_indented and indent >= 4)

    def _take_line(self, line: str) -> None:
        """A whole line goes to the open block."""
        self._lines.append(line)
        self._size += len(line)
        line = line.rstrip("\r\n")
        if not line.strip(" \t\r"):
            self._after_blank = self._has_content
            return
        self._after_blank = False
        if not self._has_content:
            self._has_content = True
            self._is_indented = _indent(line) >= 4
        if self._fence is not None and not self._leaves_fence(self._fence, line):
            return
        self._look_for_fence(line)

    def _leaves_fence(self, fence: _Fence, line: str) -> bool:
        """Whether the line ends the open fence, and is itself to be looked at."""
        rest = line
        for _ in range(fence.quotes):
            quote = _QUOTE.match(rest)
            if quote is None:
                self._fence = None
                return True
            rest = rest[quote.end() :]
        if fence.indent and _indent(rest) < fence.indent:
            self._fence = None
            return True
        closing = rest.strip(" \t\r")
        is_closing = len(closing) >= fence.length and not closing.strip(fence.sign)
        if is_closing and (fence.indent or _indent(rest) < 4):
            self._fence = None
        return False

    def _look_for_fence(self, line: str) -> None:
        rest, quotes, indent = line, 0, 0
        for _ in range(_CONTAINERS):
            if quote := _QUOTE.match(rest):
                quotes += 1
                rest = rest[quote.end() :]
                continue
            item = _ITEM.match(rest)
            if item is None or _RULE.fullmatch(rest):
                break
            if not quotes and _indent(rest) < 4:
                self._is_list = True
            indent += item.end()
            rest = rest[item.end() :]
        here = _indent(rest)
        if here >= 4 and not self._is_list:
            return
        fence = _FENCE.fullmatch(rest.strip(" \t\r"))
        if fence is None:
            return
        signs = fence[1] or fence[2]
        inside = indent or (min(here, 2) if self._is_list else 0)
        self._fence = _Fence(signs[0], len(signs), quotes, 0 if quotes else inside)


def _split(text: str) -> list[tuple[int, int, str]]:
    """All of a text as sources, the open piece last."""
    splitter = BlockSplitter()
    found = splitter.feed_sources(text)
    if splitter.open:
        found.append((splitter.closed, splitter.end, splitter.open))
    return found


def closed_blocks(text: str) -> list[Block]:
    """The blocks of a text that nothing behind them can change."""
    return BlockSplitter().feed(text)


def final_blocks(text: str) -> list[str]:
    """The HTML of the blocks of a whole text, in order: what stays once a text is finished."""
    return [block.html for block in all_blocks(text)]


def all_blocks(text: str) -> list[Block]:
    """The blocks of a whole text; together they cover it exactly.

    A link target that is defined in one block holds in all of them, also in earlier ones: such
    blocks come out differently here than they did while the text grew.
    """
    sources = _split(text)
    references: dict[str, Any] = {}
    if len(text) <= TEXT_LIMIT and _DEFINITION.search(text):
        for _k, _start, source in sources:
            if _DEFINITION.search(source):
                for name, target in markdown.references_in(source).items():
                    references.setdefault(name, target)
    return [
        Block(k, start, start + len(source), markdown.render(source, references))
        for k, start, source in sources
    ]
