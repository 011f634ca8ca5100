"""One socket without a network: what it would be told, from the rows of this test."""

from __future__ import annotations

from typing import Any

from hermes.lib.viewers import Viewer
from hermes.web import reading
from hermes.web.cursor import Cursor


class Told:
    """What a page holds that was told every change; ``hello`` is what a new page is told."""

    def __init__(self, chat, *, html: bool = True) -> None:
        self.chat = chat
        self.viewer = Viewer(chat.owner_id, chat.owner.username, "login", "stamp")
        self.cursor = Cursor(html=html)
        self.html = html
        self.frames: list[dict[str, Any]] = []
        self.shown: dict[str, Any] = {}
        self.look("hello")

    def look(self, reason: str | None = None) -> list[dict[str, Any]]:
        """Look once; the frames that come of it."""
        seen = reading.look(self.viewer, str(self.chat.uid), self.cursor, reason=reason)
        frames = self.cursor.advance(seen, None)
        self.frames += frames
        for frame in frames:
            self.take(frame)
        return frames

    def take(self, frame: dict[str, Any]) -> None:
        """What a client does with a frame."""
        match frame["type"]:
            case "hello" | "session.changed":
                self.shown = {
                    "compaction": frame["compaction"],
                    "preview": frame["preview"],
                    "log": frame.get("html"),
                    "pill": frame.get("htmls", {}).get("compaction"),
                    "turn": frame["turn"] and frame["turn"]["status"],
                    "until": frame["turn"] and frame["turn"].get("until"),
                }
            case "compaction.update":
                self.shown["pill"] = frame.get("html")
                self.shown["compaction"] = {
                    name: value for name, value in frame.items() if name not in {"type", "html"}
                }
                if frame["state"] != "preview":
                    self.shown["preview"] = None
            case "compaction.preview":
                self.shown["preview"] = {
                    name: value for name, value in frame.items() if name not in {"type", "html"}
                }
            case "turn.held":
                self.shown |= {"turn": "held", "until": frame["until"]}

    def notices(self, code: str = "") -> list[dict[str, Any]]:
        """The notices told so far, of this code or all."""
        told = [each for each in self.frames if each["type"] == "notice"]
        return [each for each in told if code in {"", each["code"]}]

    def holds_the_same_as_a_new_page(self) -> bool:
        """Whether nothing is shown that a page opened now would not show, and the reverse."""
        self.look()
        fresh = Told(self.chat, html=self.html).shown
        names = ("compaction", "preview", "pill", "turn", "until")
        mine = {name: plain(self.shown.get(name)) for name in names}
        theirs = {name: plain(fresh.get(name)) for name in names}
        assert mine == theirs
        return True


def plain(value: Any) -> Any:
    """Without the time that passes."""
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if name != "elapsed"}
    return value
