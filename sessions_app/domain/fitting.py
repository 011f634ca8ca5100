"""What fits into a request: whole exchanges, the newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .states import MessageRole

RESERVE_SHARE: Final = 16  # window ÷ 16 is kept for the answer
MESSAGE_OVERHEAD: Final = 4  # tokens of framing a message


ESTIMATE_MARGIN: Final = 1.15  # the estimate is at most this much too low


def estimated_window(window: int, ratio: float = 1.0) -> int:
    """A window in estimated tokens, for a model that counts ``ratio`` for each of them.

    >>> estimated_window(11_500), estimated_window(11_500, 2.0)
    (10000, 5000)
    """
    return round(window / (ESTIMATE_MARGIN * ratio))


@dataclass(frozen=True)
class Row:
    """What choosing a context needs to know of a message."""

    seq: int
    role: str
    tokens: int
    has_calls: bool = False


def budget(window: int, fixed_tokens: int) -> int:
    """Tokens left for messages: the window, less the answer's reserve and the fixed parts.

    >>> budget(16_000, 1_000)
    14000
    """
    return max(0, window - window // RESERVE_SHARE - fixed_tokens)


def groups_newest_first(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Split rows (newest first) into units that stand or fall together, oldest row first in each.

    A unit is a user message with all that follows it up to the next one.

    >>> rows = [Row(seq, ("assistant", "user")[seq % 2], 1) for seq in (4, 3, 2, 1)]
    >>> [[row.seq for row in group] for group in groups_newest_first(rows)]
    [[3, 4], [1, 2]]
    """
    group: list[Row] = []
    for row in rows:
        group.append(row)
        if row.role == MessageRole.USER:
            yield group[::-1]
            group = []
    if group:
        yield group[::-1]


def fit(rows: Iterable[Row], room: int) -> list[int]:
    """The seqs of the newest rows that fit into ``room`` tokens, in order.

    Whole exchanges only, newest first. The last user message is always in; of its own exchange the
    newest whole tool rounds that fit are. ``rows`` comes newest first and is read no further than
    needed.

    >>> rows = [Row(seq, ("assistant", "user")[seq % 2], 5) for seq in (4, 3, 2, 1)]
    >>> fit(rows, 20), fit(rows, 19), fit(rows, 1)
    ([1, 2, 3, 4], [3, 4], [3])
    """
    chosen: list[list[int]] = []
    left = room
    for number, group in enumerate(groups_newest_first(rows)):
        size = sum(row.tokens for row in group)
        if size <= left:
            chosen.append([row.seq for row in group])
            left -= size
            continue
        if number == 0:
            chosen.append(_fit_newest(group, left))
        break
    return [seq for seqs in reversed(chosen) for seq in seqs]


def _fit_newest(group: Sequence[Row], room: int) -> list[int]:
    """Of an exchange that is too big: its user message, then the newest rounds that fit.

    >>> call, result = Row(2, "assistant", 3, has_calls=True), Row(3, "tool", 9)
    >>> _fit_newest([Row(1, "user", 2), call, result, Row(4, "assistant", 3)], 6)
    [1, 4]
    """
    head = [group[0]] if group[0].role == MessageRole.USER else []
    rounds: list[list[Row]] = []
    for row in group[len(head) :]:
        if row.role == MessageRole.TOOL and rounds:
            rounds[-1].append(row)
        else:
            rounds.append([row])
    left = room - sum(row.tokens for row in head)
    kept: list[list[Row]] = []
    for piece in reversed(rounds):
        size = sum(row.tokens for row in piece)
        if size > left:
            break
        kept.append(piece)
        left -= size
    return [row.seq for row in head] + [row.seq for piece in reversed(kept) for row in piece]


def runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Rising numbers as closed ranges without gaps.

    >>> runs([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found
