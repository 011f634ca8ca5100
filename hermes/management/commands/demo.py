"""``manage.py demo``: sample chats, people-shaped, for a look at the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import F

from compression_app import fence, prompts, source
from compression_app import intake as compaction
from compression_app.domain import Commit, Reason
from compression_app.models import CompactionAttempt, Cooldown
from hermes.dashboard import rollups
from hermes.dashboard.domain import HOUR, floor
from hermes.dashboard.models import RollupMark
from hermes.lib import tokens
from hermes.lib.chat import Usage
from hermes.lib.db import db_now
from hermes.management import samples
from hermes.management.samples import Exchange
from processes_app import intake as processes
from processes_app.domain import Answer, ApprovalStatus, ProcessReason, ProcessStatus
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from processes_app.runner import deliver
from sessions_app import intake, transcript
from sessions_app.domain import EndpointKind
from sessions_app.models import Chat, History, Message, ModelEndpoint, Session, Summary, Turn

WINDOW: Final = 3_000  # small, so that a chat of some pages is a long one
ENDPOINT: Final = "Offline model, small window (sample)"
MODEL: Final = "sample"

T = TypeVar("T")

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
# The same for what is about a session by its key.
TIMES_BY_KEY: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (ProcessRecord, ("created_at", "started_at", "ended_at", "tail_at", "kill_asked_at")),
    (CompletionEvent, ("created_at", "happened_at", "due_at", "settled_at", "waits_since")),
    (Approval, ("created_at", "answered_at", "until", "revoked_at")),
)


class Command(BaseCommand):
    """Add sample chats to a person's side bar, once."""

    help = "Adds sample chats to the running installation: long, failing, with commands."

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
                _commands(person.pk, now),
                _streak(person.pk, now),
                _long(person.pk, now),
            ]
            History.objects.create(kind="demo", subject=f"user:{person.pk}")
        _roll_up_again(now - timedelta(days=1, hours=2))
        self.stdout.write(
            f"Added {len(made)} sample chats to the side bar of {person.get_username()}: one with "
            "two summaries, one whose summaries fail, one with commands. The dashboard at /admin/ "
            "shows them. A new chat can use their model with a small window, too."
        )


@dataclass
class Story:
    """A chat that is being told: each step happens at its own time in the past."""

    chat: Chat
    session: Session

    def at(self, when: datetime, step: Callable[[], T]) -> T:
        """Let a step happen as if it had happened then; what it returns."""
        before = db_now()
        made = step()
        shift(self.session.pk, before, when - before)
        return made

    def say(self, exchange: Exchange, *, seconds: float) -> None:
        """One question, and its answer after so many seconds."""
        asked, answered = exchange
        intake.accept_turn(
            chat_id=self.chat.pk,
            user_id=self.chat.owner_id,
            client_turn_id=f"demo-{self.session.pk}-{self.session.turns.count()}",
            text=asked,
        )
        self._answer(answered, seconds=seconds)

    def report(self, answered: str, *, seconds: float) -> None:
        """What the agent says of a process that has ended, in the turn that was made for it."""
        self._answer(answered, seconds=seconds)
        deliver(self.chat.key)

    def _answer(self, answered: str, *, seconds: float) -> None:
        claimed = transcript.claim(self.session.pk)
        if claimed is None or not transcript.start(claimed):
            raise CommandError("A sample turn could not start.")
        turn = claimed.turn
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
    with transcript.moving_history():
        for model, owner, columns in TIMES:
            for column in columns:
                rows = model.objects.filter(**{owner: session_id, f"{column}__gte": since})
                rows.update(**{column: F(column) + delta})
        key = Session.objects.values_list("key", flat=True).get(pk=session_id)
        subjects = []
        for model, columns in TIMES_BY_KEY:
            of_session = model.objects.filter(origin_session=key)
            for column in columns:
                rows = of_session.filter(**{f"{column}__gte": since})
                rows.update(**{column: F(column) + delta})
            name = {ProcessRecord: "process", CompletionEvent: "completion"}.get(model, "approval")
            subjects += [f"{name}:{pk}" for pk in of_session.values_list("pk", flat=True)]
        lines = History.objects.filter(subject__in=subjects, session=None, at__gte=since)
        lines.update(at=F("at") + delta)


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


def _commands(user_id: int, now: datetime) -> Chat:
    """A chat that ran three commands, with each an end of its own.

    One was reported, one ended after its session was closed, and one while its owner was
    deactivated: the news of that one can be redelivered.
    """
    when = now - timedelta(hours=5)
    story = _story(user_id, samples.COMMANDS_TITLE, when)
    asked, told = samples.COMMANDS
    story.at(when, lambda: story.say(asked, seconds=8.0))
    when += timedelta(minutes=1)
    count, check = samples.COUNT, samples.CHECK
    story.at(when, lambda: _allow(story, count.command))
    first = story.at(when, lambda: _run(story, count.command))
    when += timedelta(minutes=7)
    story.at(when, lambda: _end(story, first, count))
    story.at(when, lambda: story.report(told, seconds=9.0))
    when += timedelta(minutes=3)
    second = story.at(when, lambda: _run(story, check.command))
    when += timedelta(minutes=2)
    new: dict[str, Any] = {"chat_id": story.chat.pk, "user_id": user_id, "client_id": "demo-new"}
    story.at(when, lambda: intake.new_session(**new))
    Session.objects.filter(pk=story.session.pk).update(ended_at=when)
    following = Session.objects.get(chat=story.chat, ended_at=None)
    shift(following.pk, when, when - now)
    Session.objects.filter(pk=following.pk).update(created_at=when, touched_at=when)
    when += timedelta(minutes=6)
    story.at(when, lambda: _end(story, second, check))
    story = Story(story.chat, following)
    when += timedelta(minutes=2)
    story.at(when, lambda: story.say(samples.TWICE, seconds=7.0))
    third = story.at(when, lambda: _run(story, samples.COMPARE.command))
    when += timedelta(minutes=9)
    owner = get_user_model()._default_manager.filter(pk=user_id)
    owner.update(is_active=False)  # seen by nobody else: this is one transaction
    story.at(when, lambda: _end(story, third, samples.COMPARE))
    owner.update(is_active=True)
    return _close(story, when)


def _allow(story: Story, command: str) -> None:
    turn = story.session.turns.order_by("pk").last()
    Approval.objects.create(
        status=ApprovalStatus.ALLOWED,
        answer=Answer.ONCE,
        turn_id_meant=0 if turn is None else turn.pk,
        call_id="demo",
        origin_chat=story.chat.key,
        origin_session=story.session.key,
        owner_id_meant=story.chat.owner_id,
        command=command,
        until=db_now() + timedelta(minutes=5),
        answered_at=db_now(),
    )


def _run(story: Story, command: str) -> int:
    process = ProcessRecord.objects.create(
        command=command,
        origin_chat=story.chat.key,
        origin_session=story.session.key,
        owner_id_meant=story.chat.owner_id,
    )
    processes.claim(process.pk, host=MODEL, boot_id=MODEL, sandbox="bwrap")
    processes.record_start(process.pk, pid=0, pid_start=MODEL, started_at=db_now())
    return process.pk


def _end(story: Story, process_id: int, told: samples.Sample) -> None:
    """It has ended, and the table says what becomes of the news."""
    end = processes.End(
        ProcessStatus.ENDED,
        ProcessReason.EXITED,
        exit_code=0,
        ended_at=db_now(),
        output_bytes=len(told.output),
        body=told.output,
    )
    if not processes.record_end(process_id, end):
        raise CommandError("A sample process could not end.")
    deliver(story.chat.key)


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
    rollups.catch_up()
