"""What the scripted server can be told to do, as data that JSON can carry."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

_SAY = re.compile(r"say (\d+) words?", re.IGNORECASE)
DEFAULT_WORDS = 20


def digest(text: str) -> str:
    """Eight characters that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def expected_answer(user_text: str) -> str:
    """What the server answers to this last user message where no script says otherwise.

    >>> expected_answer("say 3 words")
    'w1 w2 w3 #226c22b8'
    """
    said = _SAY.search(user_text)
    count = int(said[1]) if said else DEFAULT_WORDS
    return " ".join([*(f"w{n}" for n in range(1, count + 1)), f"#{digest(user_text)}"])


def expected_summary(user_text: str) -> str:
    """What ``fake-sum`` answers to a request: a summary with the required sections."""
    return (
        f"## Goal\n\nSummary #{digest(user_text)}.\n\n"
        "## Done\n\nWhat was said before.\n\n## Next step\n\nGo on."
    )


@dataclass(frozen=True)
class Call:
    """A tool call; its arguments stream in ``pieces`` fragments."""

    name: str
    arguments: str = "{}"
    id: str | None = "call_1"
    pieces: int = 2


@dataclass(frozen=True)
class Behaviour:
    """How one request is answered. The default answers ``expected_answer`` and ends well."""

    # What is said
    text: str | None = None  # None: expected_answer (fake-sum: expected_summary)
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    calls: tuple[Call, ...] = ()  # left out when the request ends with a tool result
    repeat_calls: bool = False  # … unless this is set
    usage: bool = True
    finish_reason: str | None = "stop"  # "tool_calls" where calls are made; None: none is sent
    done: bool = True  # send [DONE]
    error_after: dict[str, Any] | None = None  # an error object in the stream, behind the text
    endless: bool = False
    stream: bool = True  # False: one JSON body

    # When
    tokens_per_second: float = 0.0  # 0: as fast as it goes
    delay: float = 0.0  # seconds before the headers
    hold: str = ""  # wait until this name is released …
    hold_at: int = -1  # … before the headers (-1), or after so many tokens
    stall_after: int | None = None  # after so many tokens: silent until the client goes

    # How
    chunking: str = "word"  # word | char | whole
    piece_bytes: int = 0  # bytes of one write; 0: one event
    cut_after: int | None = None  # bytes of the body after which the connection ends
    reset: bool = False  # … by a reset instead of an end
    framing: str = "chunked"  # chunked | close: the body ends with the connection
    raw: str | None = None  # the body itself, as text …
    raw_hex: str | None = None  # … or as bytes

    # Or not at all
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None  # with a status other than 200; also with 200, as a plain body
    refuse: tuple[str, ...] = ()  # parameters that are answered with 400
    key: str | None = None  # 401 without this key
    hang_up: bool = False  # close without a word

    @classmethod
    def of(cls, data: dict[str, Any] | Behaviour) -> Behaviour:
        """A behaviour out of JSON."""
        if isinstance(data, Behaviour):
            return data
        data = dict(data)
        data["calls"] = tuple(Call(**call) for call in data.get("calls", ()))
        data["refuse"] = tuple(data.get("refuse", ()))
        return cls(**data)

    def as_json(self) -> dict[str, Any]:
        """The behaviour as JSON can carry it."""
        return dataclasses.asdict(self)

    @property
    def body_bytes(self) -> bytes | None:
        """The body that was given, or None where one is to be made."""
        if self.raw_hex is not None:
            return bytes.fromhex(self.raw_hex)
        return None if self.raw is None else self.raw.encode()


@dataclass
class Rule:
    """A behaviour for requests whose last user message contains ``match``."""

    match: str
    behaviour: Behaviour
    times: int | None = None  # None: always

    @classmethod
    def of(cls, data: dict[str, Any] | Rule) -> Rule:
        """A rule out of JSON."""
        if isinstance(data, Rule):
            return dataclasses.replace(data)
        return cls(data["match"], Behaviour.of(data["behaviour"]), data.get("times"))

    def as_json(self) -> dict[str, Any]:
        """The rule as JSON can carry it."""
        return {
            "match": self.match,
            "behaviour": self.behaviour.as_json(),
            "times": self.times,
        }
