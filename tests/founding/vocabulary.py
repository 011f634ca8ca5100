"""The founding tests' own words, over the product's real functions and rows.

The public tests speak of an attempt that is *fenced* once its watermark is marked, of a *host
turn* that is held, of a *begun commit*, and of cooldowns that are *recorded*. Here each word is a
question to the database, or one call.
"""

from __future__ import annotations

from dataclasses import dataclass

from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from sessions_app.models import Chat, Message, Session, Summary, Turn
from tests.scripted.server import ScriptedServer
from tests.scripted.server import wait_for as _wait_for


def wait_for(condition, seconds: float = 10.0):
    """Wait for something to become true; its value."""

    def look():
        return {"counts": None, "value": condition()}

    return _wait_for(look, lambda seen: seen["value"], seconds)


@dataclass
class Conversation:
    """One chat under test, and the scripted provider that it talks to."""

    chat: Chat
    scripted: ScriptedServer

    @property
    def session(self) -> Session:
        return Session.objects.select_related("summary").get(chat=self.chat)

    @property
    def attempt(self) -> CompactionAttempt:
        return CompactionAttempt.objects.filter(session__chat=self.chat).latest("pk")

    @property
    def commit_watermark(self) -> int | None:
        return self.attempt.watermark

    def is_fenced(self) -> bool:
        return self.attempt.watermark is not None

    def worker_has_started(self) -> bool:
        return self.attempt.claimed_at is not None

    def recorded_cooldowns(self) -> list[Cooldown]:
        return list(Cooldown.objects.filter(session__chat=self.chat).order_by("pk"))

    def failure_streak(self) -> int:
        state = CompressionState.objects.filter(session__chat=self.chat).first()
        return 0 if state is None else state.streak

    def commits(self) -> list[Summary]:
        return list(Summary.objects.filter(session__chat=self.chat).order_by("pk"))

    def model_turns(self) -> int:
        """How often the chat model was asked."""
        return len(self.scripted.requests("fake-chat"))

    def summary_streams(self) -> dict[str, int]:
        return self.scripted.report()["counts"]["fake-sum"]

    def verbatim_after(self, seq: int) -> list[tuple[str, str]]:
        rows = Message.objects.filter(session=self.session, seq__gt=seq).order_by("seq")
        return list(rows.values_list("role", "text"))

    def answer_of(self, turn: Turn, seconds: float = 5.0) -> str:
        """The answer of a turn, waited for."""

        def done():
            turn.refresh_from_db()
            return turn.status not in {"queued", "running"}

        wait_for(done, seconds)
        assert turn.status == "completed", (turn.status, turn.error_code)
        return Message.objects.get(turn=turn, role="assistant").text
