"""Marks on the window: from where a summary is written, and what of the end stays verbatim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sessions_app.domain import RESERVE_SHARE, MessageKind, MessageRole

TAIL_SHARE: Final = 0.025
TAIL_LEAST, TAIL_MOST = 10_000, 25_000  # tokens
TAIL_CAP_SHARE: Final = 0.20


def mark(window: int, share: float) -> int:
    """Tokens at which a share of (window − reserve) is reached.

    >>> mark(16_000, 0.6), mark(16_000, 0.85)
    (9000, 12750)
    """
    return int((window - window // RESERVE_SHARE) * share)


def tail_budget(window: int) -> int:
    """Tokens at the end that stay verbatim.

    >>> tail_budget(8_000), tail_budget(128_000), tail_budget(2_000_000)
    (1600, 10000, 25000)
    """
    wanted = min(max(int(window * TAIL_SHARE), TAIL_LEAST), TAIL_MOST)
    return min(wanted, int(window * TAIL_CAP_SHARE))


@dataclass(frozen=True)
class Row:
    """What choosing the cut needs to know of a live message."""

    seq: int
    role: str
    kind: str
    tokens: int
    has_calls: bool = False


def is_group_start(row: Row) -> bool:
    """Whether a cut may be made before this row: a result never leaves its call.

    >>> is_group_start(Row(1, "tool", "result", 1)), is_group_start(Row(1, "assistant", "text", 1))
    (False, True)
    """
    return row.role != MessageRole.TOOL


def cut_before(newest_first: Iterable[Row], budget: int) -> int | None:
    """The seq at which the protected tail begins, or None if everything is protected.

    The tail holds what fits into ``budget``, and always the last message of a person, the last
    visible answer, and whole groups: read newest first, no further than needed.

    >>> rows = [
    ...     Row(6, "assistant", "text", 5), Row(5, "user", "text", 5),
    ...     Row(4, "assistant", "text", 5), Row(3, "tool", "result", 5),
    ...     Row(2, "assistant", "text", 5, has_calls=True), Row(1, "user", "text", 5),
    ... ]
    >>> cut_before(rows, 10), cut_before(rows, 16), cut_before(rows, 0), cut_before(rows, 99)
    (5, 4, 5, None)
    """
    begin: int | None = None
    used = 0
    seen_person = seen_answer = False
    for row in newest_first:
        used += row.tokens
        if used > budget and seen_person and seen_answer and begin is not None:
            return begin
        is_person = row.role == MessageRole.USER and row.kind == MessageKind.TEXT
        is_answer = row.role == MessageRole.ASSISTANT and not row.has_calls
        seen_person, seen_answer = seen_person or is_person, seen_answer or is_answer
        if is_group_start(row):
            begin = row.seq
    return None


def take_groups(oldest_first: Sequence[Row], room: int) -> int | None:
    """The seq of the last row of as many whole groups as fit; at least the first group, clipped.

    >>> roles = ("user", "assistant", "tool")
    >>> rows = [Row(seq, role, "text", 5) for seq, role in enumerate(roles, 1)]
    >>> take_groups(rows, 6), take_groups(rows, 15), take_groups(rows, 1), take_groups([], 9)
    (1, 3, 1, None)
    """
    used, last = 0, None
    for group in groups(oldest_first):
        used += sum(row.tokens for row in group)
        if used > room and last is not None:
            break
        last = group[-1].seq
    return last


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows as units that stay together: a call with all its results, else each row by itself."""
    found: list[list[Row]] = []
    for row in rows:
        if found and not is_group_start(row):
            found[-1].append(row)
        else:
            found.append([row])
    return found
