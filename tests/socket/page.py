"""What a page holds of the answer that streams: closed blocks, the open text, the foot."""

from __future__ import annotations

from typing import Any

from .client import Client


class Page(Client):
    """A client that takes html, as a browser does."""

    def __init__(self, base: str, chat: str, cookie: str) -> None:
        super().__init__(base, chat, cookie, html=True)
        self.html = ""
        self.groups: dict[int, str] = {}  # whole groups, as they came last
        self.blocks: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self.open_text = ""
        self.live: tuple[int, int] | None = None
        self.ends: dict[int, tuple[list[str], str]] = {}  # blocks and foot of followed turns
        self.status: dict[int, str] = {}

    def whole(self, frame: dict[str, Any]) -> None:
        self.session, self.queue, self.html = frame["session"], frame["queue"], frame["html"]
        told = frame["turn"]
        self.live = None
        if told is not None and told["status"] == "running":
            self.begin(told["id"], told["run"], told["base"])
            for block in told["blocks"]:
                self.shut(block)
            self.open_text = told["open"]
            if self.end != told["len"]:
                self.fault(f"hello has text to {self.end} where {told['len']} is told")

    @property
    def end(self) -> int:
        return self.base + sum(b - a for a, b in self.spans) + len(self.open_text)

    def begin(self, turn: int, run: int, base: int) -> None:
        self.live, self.base = (turn, run), base
        self.blocks, self.spans, self.open_text = [], [], ""
        self.status[turn] = "running"

    def shut(self, block: dict[str, Any]) -> None:
        start = self.spans[-1][1] if self.spans else self.base
        if (block["k"], block["from"]) != (len(self.blocks), start):
            self.fault(f"block {block['k']} from {block['from']} where {start} was due")
        self.blocks.append(block["html"])
        self.spans.append((block["from"], block["to"]))

    def on_turn_started(self, frame: dict[str, Any]) -> None:
        self.groups[frame["turn"]] = frame["html"]
        self.begin(frame["turn"], frame["run"], frame["base"])

    on_turn_tool = on_turn_started

    def on_turn_delta(self, frame: dict[str, Any]) -> None:
        if self.live != (frame["turn"], frame["run"]):
            self.fault("a delta of a run that is not followed")
        if frame["offset"] != self.end:
            self.fault(f"delta at {frame['offset']} where {self.end} was due")
        self.open_text += frame["text"]

    def on_turn_block(self, frame: dict[str, Any]) -> None:
        before = self.end
        self.shut(frame)
        self.open_text = frame["open"]
        if self.end < before:
            self.fault(f"a block takes text back: {self.end} after {before}")

    def ending(self, frame: dict[str, Any], status: str) -> None:
        self.status[frame["turn"]] = status
        if "html" in frame:
            self.groups[frame["turn"]] = frame["html"]
        elif "blocks" in frame:
            blocks = dict(enumerate(self.blocks))
            blocks |= {block["k"]: block["html"] for block in frame["blocks"]}
            if set(range(frame["total"])) - set(blocks):
                self.fault("blocks are missing at the end")
            shown = [blocks[k] for k in range(frame["total"])]
            self.ends[frame["turn"]] = (shown, frame["foot"])
            self.patched = len(frame["blocks"])
        self.live = None

    def on_turn_waiting(self, frame: dict[str, Any]) -> None:
        self.status[frame["turn"]] = "waiting"

    def on_turn_queued(self, frame: dict[str, Any]) -> None:
        self.status[frame["turn"]] = "queued"
