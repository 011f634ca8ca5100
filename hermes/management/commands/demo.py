"""``manage.py demo``: sample chats, people-shaped, for a look at the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import F

from compression_app import fence, prompts, source
from compression_app import intake as compaction
from compression_app.domain import Commit, Reason
from compression_app.models import CompactionAttempt, Cooldown
from hermes.dashboard import rollups
from hermes.dashboard.domain import HOUR, SLOT, floor
from hermes.dashboard.models import RollupMark
from hermes.lib import tokens
from hermes.lib.chat import Usage
from hermes.lib.db import db_now
from hermes.management import samples
from hermes.management.samples import Exchange
from sessions_app import intake, transcript
from sessions_app.domain import EndpointKind
from sessions_app.models import Chat, History, Message, ModelEndpoint, Session, Summary, Turn

WINDOW: Final = 3_000  # small, so that a chat of some pages is a long one
ENDPOINT: Final = "Offline model, small window (sample)"
MODEL: Final = "sample"

# Columns that say when something happened, by what holds them.
TIMES: Final[tuple[tuple[Any, str, tuple[str, ...]], ...]] = (
    (Turn, "session", ("created_at", "started_at", "finished_at")),
    (Message, "session", ("created_at",)),
    (Summary, "session", ("created_at",)),
    (
        CompactionAttempt,
        "session",
        (
            "opened_at",
            "claimed_at",
            "hold_started_at",
            "hold_released_at",
            "progress_at",
            "deadline_at",
            "finished_at",
        ),
    ),
    (Cooldown, "session", ("created_at", "until", "cleared_at")),
    (History, "session", ("at",)),
)


class Command(BaseCommand):
    """Add sample chats to a person's side bar, once."""

    help = "Adds sample chats to the running installation: a long one with two summaries, a streak."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose chats they become."""
        parser.add_argument("--user", default="", help="login name; else the first admin")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the chats as if they had been held during the last day."""
        people = get_user_model()._default_manager
        named = options["user"]
        person = (
            people.filter(username=named).first()
            if named
            else people.filter(is_superuser=True, is_active=True).order_by("pk").first()
        )
        if person is None:
            raise CommandError("There is nobody of that name. Start Hermes once: make run")
        if History.objects.filter(kind="demo", subject=f"user:{person.pk}").exists():
            self.stdout.write("The sample chats are there already.")
            return
        now = db_now()
        with transaction.atomic():
            made = [
                *(
                    _short(person.pk, title, exchanges, now - timedelta(hours=23 - 4 * n))
                    for n, (title, exchanges) in enumerate(samples.SHORT)
                ),
                _streak(person.pk, now),
                _long(person.pk, now),
            ]
            History.objects.create(kind="demo", subject=f"user:{person.pk}")
        _roll_up_again(now - timedelta(days=1, hours=2))
        self.stdout.write(
            f"Added {len(made)} sample chats to the side bar of {person.get_username()}: one with "
            "two summaries, one whose summaries fail. The dashboard at /admin/ shows them."
        )


@dataclass
class Story:
    """A chat that is being told: each step happens at its own time in the past."""

    chat: Chat
    session: Session

    def at(self, when: datetime, step: Callable[[], None]) -> None:
        """Let a step happen as if it had happened then."""
        before = db_now()
        step()
        shift(self.session.pk, before, when - before)

    def say(self, exchange: Exchange, *, seconds: float) -> None:
        """One question, and its answer after so many seconds."""
        asked, answered = exchange
        turn = intake.accept_turn(
            chat_id=self.chat.pk,
            user_id=self.chat.owner_id,
            client_turn_id=f"demo-{self.session.pk}-{self.session.turns.count()}",
            text=asked,
        ).turn
        claimed = transcript.claim(self.session.pk)
        if claimed is None or not transcript.start(claimed):
            raise CommandError("A sample turn could not start.")
        session = Session.objects.get(pk=self.session.pk)
        step = transcript.Step(
            text=answered,
            usage=Usage(transcript.context_tokens(session) + 240, tokens.estimate(answered)),
            last_seq=session.last_seq,
            live_tokens=session.live_tokens,
            built_on_id=session.summary_id,
            model_name=MODEL,
        )
        transcript.finish(claimed, step)
        later = timedelta(seconds=seconds)
        Turn.objects.filter(pk=turn.pk).update(finished_at=F("finished_at") + later)
        Message.objects.filter(turn=turn, role="assistant").update(
            created_at=F("created_at") + later
        )

    def attempt(self, *, operator: str = "") -> fence.Claimed:
        """An attempt in our hands, opened as a person would."""
        opened = compaction.request_compaction(
            session_id=self.session.pk,
            trigger="operator" if operator else "manual",  # type: ignore[arg-type] # made one
            actor=operator,
        )
        if not isinstance(opened, CompactionAttempt):
            raise CommandError(f"A sample attempt was refused: {opened.reason}.")
        claimed = fence.claim(opened.pk, endpoint_id=None, model_name=MODEL)
        if claimed is None:
            raise CommandError("A sample attempt could not be claimed.")
        return claimed


def shift(session_id: int, since: datetime, delta: timedelta) -> None:
    """Move the times of what a session got since a moment into the past."""
    for model, owner, columns in TIMES:
        for column in columns:
            rows = model.objects.filter(**{owner: session_id, f"{column}__gte": since})
            rows.update(**{column: F(column) + delta})


def _story(user_id: int, title: str, begin: datetime) -> Story:
    before = db_now()
    endpoint, _ = ModelEndpoint.objects.get_or_create(
        name=ENDPOINT,
        defaults={
            "kind": EndpointKind.OFFLINE,
            "role": "chat",
            "model": "offline",
            "window": WINDOW,
            "priority": -10,
        },
    )
    chat = intake.create_chat(user_id=user_id, title=title)
    intake.new_session(chat_id=chat.pk, user_id=user_id, client_id="demo")
    Chat.objects.filter(pk=chat.pk).update(endpoint=endpoint, is_named=True)
    chat.refresh_from_db()
    session = Session.objects.get(chat=chat)
    shift(session.pk, before, begin - before)
    Session.objects.filter(pk=session.pk).update(created_at=begin)
    return Story(chat, session)


def _close(story: Story, last: datetime) -> Chat:
    """Put the chat into the side bar where it belongs."""
    Chat.objects.filter(pk=story.chat.pk).update(
        begun_at=last, active_at=last, read_session=story.session, read_seq=10_000
    )
    Session.objects.filter(pk=story.session.pk).update(touched_at=last)
    return story.chat


def _short(user_id: int, title: str, exchanges: Sequence[Exchange], begin: datetime) -> Chat:
    story = _story(user_id, title, begin)
    when = begin
    for exchange in exchanges:
        story.at(when, lambda each=exchange: story.say(each, seconds=11.0))  # type: ignore[misc] # bound now
        when += timedelta(minutes=3)
    return _close(story, when)


def _long(user_id: int, now: datetime) -> Chat:
    """A chat with two summaries, the second of which came after its turn had been let go."""
    when = now - timedelta(hours=9)
    story = _story(user_id, samples.LONG_TITLE, when)
    summaries = dict(samples.SUMMARIES)
    for number, exchange in enumerate(samples.LONG, start=1):
        story.at(when, lambda each=exchange: story.say(each, seconds=24.0))  # type: ignore[misc] # bound now
        when += timedelta(minutes=19 if number % 4 else 47)
        if number in summaries:
            body, late = summaries[number], number == samples.SUMMARIES[-1][0]
            story.at(
                when - timedelta(minutes=2),
                lambda text=body, is_late=late: _summarise(story, text, is_late=is_late),  # type: ignore[misc] # bound now
            )
    return _close(story, min(when, now - timedelta(minutes=4)))


def _summarise(story: Story, body: str, *, is_late: bool) -> None:
    claimed = story.attempt()
    attempt = claimed.attempt
    if is_late:
        fence.hold(attempt.pk, story.session.turns.count(), story.session.pk)
        fence.release(attempt.pk, story.session.pk)
    session = Session.objects.select_related("summary").get(pk=story.session.pk)
    read = source.read(session, attempt.cut, 10**9)
    if read is None:
        raise CommandError("There is nothing to summarise in the sample chat.")
    draft = prompts.draft(read, body, WINDOW)
    usage = Usage(read.tokens + 600, tokens.estimate(body))
    verdict = fence.commit(claimed.lease, fence.Written(draft, usage=usage))
    if not isinstance(verdict, Commit):
        raise CommandError(f"The sample summary was not adopted: {verdict}.")
    # It took a while: everything after its opening happened later than the rows say.
    took = timedelta(seconds=96 if is_late else 31)
    CompactionAttempt.objects.filter(pk=attempt.pk).update(
        hold_released_at=F("hold_started_at") + timedelta(seconds=10) if is_late else None,
        finished_at=F("opened_at") + took,
    )


def _streak(user_id: int, now: datetime) -> Chat:
    """A chat whose last three summaries failed; its cooldown runs."""
    when = now - timedelta(hours=3)
    story = _story(user_id, samples.STREAK_TITLE, when)
    for exchange in samples.STREAK:
        story.at(when, lambda each=exchange: story.say(each, seconds=17.0))  # type: ignore[misc] # bound now
        when += timedelta(minutes=12)
    for minutes in (55, 41, 9):
        story.at(now - timedelta(minutes=minutes), lambda: _fail(story))
    # The last cooldown counts from its failure; those before it are over.
    return _close(story, now - timedelta(minutes=9))


def _fail(story: Story) -> None:
    claimed = story.attempt(operator="demo")
    fence.fail(
        claimed.lease,
        Reason.PROVIDER,
        detail="authentication: the key was refused (401)",
        usage=Usage(2_140, 0),
    )
    CompactionAttempt.objects.filter(pk=claimed.attempt.pk).update(
        opened_at=F("opened_at") - timedelta(seconds=3), claimed_at=F("opened_at")
    )


def _roll_up_again(since: datetime) -> None:
    """The rollups count anew from a time on, since rows were added to their past."""
    mark, _ = RollupMark.objects.get_or_create(name="all", defaults={"through": since})
    mark.through, mark.history_id = min(mark.through, floor(since, HOUR)), 0
    mark.save()
    for _ in range(40):
        if rollups.roll_up() >= floor(db_now(), SLOT):
            break
