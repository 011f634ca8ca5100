"""What pages read. Every read is bounded, and none grows with the length of a transcript."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, TextField, When
from django.db.models.functions import JSONObject, Left, Length
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from processes_app import selectors as processes
from sessions_app.domain import MessageRole, TurnSource
from sessions_app.models import (
    BUSY_TURN,
    Chat,
    Message,
    ModelEndpoint,
    Rewind,
    Session,
    Summary,
    Turn,
)

from . import groups, tasks
from .groups import SHOWN, Alternative, Fold, Group

TURNS: Final = 40  # turns of a page
ROWS: Final = 200  # rows of a page: of turns with many tools there are fewer turns
TURN_ROWS: Final = 1_000  # rows of one turn by itself, its answer among them
SIGNS: Final = 400_000  # code points of a page: of turns with long answers there are fewer turns
LISTED: Final = 50  # chats in the sidebar at first, and that each request for more adds
REWINDS: Final = 400  # versions looked at
FOLDS: Final = 3  # summaries that reach to the same row
END: Final = datetime.max.replace(tzinfo=UTC)


def chat_of(user_id: int, uid: UUID) -> Chat | None:
    """A person's chat with what its head needs, or None: it is not there, or not theirs."""
    found = Chat.objects.of(user_id).select_related("current", "current__summary", "endpoint")
    return found.annotate(has_untold=processes.has_untold()).filter(uid=uid).first()


# --- Transcripts ---------------------------------------------------------------------------------


def _shown(rows: QuerySet[Message]) -> QuerySet[Message]:
    """Rows with long texts of people and tools cut, and the full length beside them."""
    answers = When(role=MessageRole.ASSISTANT, then=F("text"))
    return rows.annotate(
        size=Length("text"),
        shown=Case(answers, default=Left("text", SHOWN), output_field=TextField()),
    ).defer("text")


def _take(rows: list[Message]) -> list[Message]:
    for row in rows:
        row.text = row.shown  # type: ignore[attr-defined] # annotated by _shown
    return rows


@dataclass
class Page:
    """Some turns of one session, the oldest first."""

    session: Session
    groups: list[Group] = field(default_factory=list)
    has_more: bool = False  # of this session
    is_past: bool = False
    undone: int | None = None  # a rewind that nothing has taken the place of
    divider: bool = False  # a session begins here, below another one
    news: list[tasks.News] = field(default_factory=list)  # that came before all of its turns

    @property
    def first_seq(self) -> int:
        """The oldest row on the page."""
        return self.groups[0].first_seq if self.groups else 0


def _within(found: list[list[Message]], limit: int) -> list[list[Message]]:
    """The newest groups that a page takes: at least one, at most ``limit``, and so many signs."""
    kept: list[list[Message]] = []
    room = SIGNS
    for group in reversed(found[-limit:]):
        room -= sum(len(row.text) for row in group)
        if kept and room < 0:
            break
        kept.append(group)
    return kept[::-1]


def page_of(
    session: Session, *, before: int | None = None, is_past: bool = False, limit: int = TURNS
) -> Page:
    """The newest turns of a session, or those before a row."""
    rows = Message.objects.filter(session=session).live()
    if before is not None:
        rows = rows.filter(seq__lt=before)
    shown = _shown(rows).select_related("turn").defer("text", "turn__text")
    newest = _take(list(shown.annotate(folds=_folds()).order_by("-seq")[: ROWS + 1]))
    is_whole = len(newest) <= ROWS
    found = groups.split(reversed(newest))
    if not is_whole and len(found) > 1:
        found = found[1:]  # its beginning is not here
    kept = _within(found, limit)
    has_more = not is_whole or len(found) > len(kept)
    found = kept
    page = Page(session, has_more=has_more, is_past=is_past)
    page.groups = [
        groups.build(each, turn=each[0].turn, session_id=session.pk, is_past=is_past)
        for each in found
    ]
    tasks.attach(page.groups)
    _fold(page, newest)
    if is_past:
        return page
    anchor = 0
    if page.groups:
        older = [row.seq for row in newest if row.seq < page.groups[0].first_seq]
        anchor = older[0] if older else 0
    if before is None:
        _add_rowless(page)
    groups.mark_superseded(page.groups)
    alternatives = _alternatives(session.pk, anchor)
    groups.place_versions(page.groups, anchor, alternatives)
    if before is None:
        page.undone = _undone(page, alternatives)
    return page


def _fold(page: Page, rows: Sequence[Message]) -> None:
    """Let the summaries of a page stand behind the turn with the last row that they cover."""
    made = [(row.seq, each) for row in rows for each in row.folds]  # type: ignore[attr-defined]
    for seq, each in made:
        above = [group for group in page.groups if group.first_seq <= seq]
        is_current = each["id"] == page.session.summary_id
        if above and (is_current or all(fold.is_current for fold in above[-1].folds)):
            above[-1].folds.append(_folded(each, is_current=is_current))


def _folded(each: Mapping[str, Any], *, is_current: bool) -> Fold:
    undone = each["reverted_at"]
    return Fold(
        summary=each["id"],
        messages=each["messages"],
        before=each["before"],
        after=each["after"],
        undone_at=None if undone is None else datetime.fromisoformat(undone),
        is_current=is_current,
    )


def _folds() -> ArraySubquery:
    """The summaries that reach to a row and count or were undone, the newest first."""
    shown = Q(pk=OuterRef("session__summary_id")) | Q(reverted_at__isnull=False)
    here = Summary.objects.filter(
        shown, session_id=OuterRef("session_id"), covers_through=OuterRef("seq")
    )
    told = JSONObject(
        id="pk",
        messages="messages",
        before="before_tokens",
        after="after_tokens",
        reverted_at="reverted_at",
    )
    return ArraySubquery(here.order_by("-pk").values(told=told)[:FOLDS])


def summary_of(chat: Chat, pk: int) -> Summary | None:
    """A summary of a chat."""
    return Summary.objects.filter(pk=pk, session__chat=chat).select_related("session").first()


def _add_rowless(page: Page) -> None:
    """Turns that stand at the end without a row of their own: running ones, and failed answers."""
    last = page.groups[-1].last_seq if page.groups else 0
    shown = {group.turn.pk for group in page.groups if group.turn is not None}
    own = Message.objects.filter(session_id=page.session.pk, turn=OuterRef("pk"))
    turns = Turn.objects.filter(~Exists(own), session_id=page.session.pk, first_seq__gt=last)
    newest = turns.defer("text").order_by("-first_seq", "-pk").first()
    if newest is not None and newest.pk not in shown:
        page.groups.append(groups.build([], turn=newest, session_id=page.session.pk))


def _alternatives(session_id: int, from_seq: int) -> Mapping[int, list[Alternative]]:
    """By the row that they follow: what is out of the context and can come back."""
    ranges = Rewind.objects.filter(session_id=session_id, undone_at=None, after_seq__gte=from_seq)
    found: dict[int, dict[int, Alternative]] = defaultdict(dict)
    for rewind in ranges.order_by("-after_seq", "-from_seq")[:REWINDS]:
        # The oldest range of a group comes last, and says where it begins.
        found[rewind.after_seq][rewind.group] = Alternative(
            rewind.group, rewind.from_seq, rewind.reason
        )
    return {after: list(each.values()) for after, each in found.items()}


def _undone(page: Page, alternatives: Mapping[int, list[Alternative]]) -> int | None:
    last = page.groups[-1] if page.groups else None
    if last is not None and (last.is_live or last.outcome is not None):
        return None
    at_the_end = alternatives.get(last.last_seq if last is not None else 0, [])
    undone = [each for each in at_the_end if each.reason in {"undo", "version"}]
    return max(undone, key=lambda each: each.rewind).rewind if undone else None


def session_before(session: Session) -> Session | None:
    """The session before one of the same chat in which something was said."""
    earlier = Session.objects.filter(
        chat_id=session.chat_id, number__lt=session.number, last_seq__gt=0
    )
    return earlier.order_by("-number").first()


def last_pages(chat: Chat) -> list[Page]:
    """What a chat shows at first: its session, and above it the end of the one before."""
    session = chat.current
    if session is None:
        return []
    pages = [page_of(session)]
    room = TURNS - len(pages[0].groups)
    if not pages[0].has_more and room > 0:
        earlier = session_before(session)
        if earlier is not None:
            pages.insert(0, page_of(earlier, is_past=True, limit=min(room, 10)))
    if _has_untold(chat):
        _place_news(chat, pages)
    return pages


def _has_untold(chat: Chat) -> bool:
    known: bool | None = getattr(chat, "has_untold", None)
    if known is None:
        known = Chat.objects.filter(processes.has_untold(), pk=chat.pk).exists()
    return known


def _place_news(chat: Chat, pages: Sequence[Page], before: int | None = None) -> None:
    """Let what was told to nobody stand where it happened.

    ``before``: the row of the last page's session that follows it, where it is not the end.
    """
    keys = [page.session.key for page in pages]
    told = [tasks.news_of(each) for each in processes.untold(chat.key, keys)]
    for page in pages:
        mine = [each for each in told if each.session == page.session.key]
        if not mine:
            continue
        until = END
        if before is not None and page is pages[-1]:
            rows = Message.objects.filter(session=page.session, seq__gte=before).order_by("seq")
            until = rows.values_list("created_at", flat=True).first() or END
        is_first = not page.has_more
        page.news = tasks.place(page.groups, mine, from_the_beginning=is_first, until=until)


def older_pages(chat: Chat, session_id: int, before: int) -> list[Page]:
    """The turns before a row of a session; where there are none, the end of the one before."""
    session = Session.objects.filter(pk=session_id, chat=chat).first()
    if session is None:
        return []
    is_past = session.pk != chat.current_id
    page = page_of(session, before=before, is_past=is_past) if before > 1 else Page(session)
    if not page.groups:
        earlier = session_before(session)
        if earlier is None:
            return []
        page = page_of(earlier, is_past=True)
    _place_news(chat, [page], before if page.session is session else None)
    return [page]


def has_older(page: Page) -> bool:
    """Whether anything was said before a page, in its session or an earlier one."""
    return page.has_more or (page.session.number > 1 and session_before(page.session) is not None)


def group_of(turn_id: int) -> Group | None:
    """One turn as its page shows it, or None if it is not shown."""
    turn = Turn.objects.filter(pk=turn_id).select_related("chat__owner").defer("text").first()
    if turn is None:
        return None
    rows = Message.objects.filter(session_id=turn.session_id, turn=turn).live()
    own = _take(list(_shown(rows).order_by("-seq")[:TURN_ROWS]))[::-1]
    if not own and (turn.first_seq is None or Message.objects.filter(turn=turn).exists()):
        return None  # it has not begun, or all of it is out of the context
    is_past = turn.session_id != turn.chat.current_id
    group = groups.build(own, turn=turn, session_id=turn.session_id, is_past=is_past)
    tasks.attach([group])
    if is_past:
        return group
    before = Message.objects.filter(session_id=turn.session_id, seq__lt=group.first_seq).live()
    anchor = before.order_by("-seq").values_list("seq", flat=True).first() or 0
    after = Turn.objects.filter(session_id=turn.session_id, first_seq__gt=group.first_seq)
    following = after.order_by("first_seq", "-pk").values_list("source", flat=True).first()
    if following == TurnSource.REGENERATE:
        group.is_superseded = True
        group.outcome = group.outcome if group.parts else None
    groups.place_versions([group], anchor, _alternatives(turn.session_id, anchor))
    return group


def version_of(chat: Chat, rewind_id: int) -> Page | None:
    """What a rewind took out of the context, to be read."""
    rewind = Rewind.objects.filter(pk=rewind_id, session__chat=chat, undone_at=None).select_related(
        "session"
    )
    found = rewind.first()
    if found is None:
        return None
    ranges = Rewind.objects.filter(group=found.group, session=found.session)
    covered = Q()
    for low, high in ranges.values_list("from_seq", "to_seq"):
        covered |= Q(seq__gte=low, seq__lte=high)
    rows = Message.objects.filter(covered, session=found.session)
    shown = _shown(rows).select_related("turn").defer("text", "turn__text")
    taken = _take(list(shown.order_by("seq")[:ROWS]))
    page = Page(found.session, is_past=True, undone=found.group)
    page.groups = [
        groups.build(each, turn=each[0].turn, session_id=found.session.pk, is_past=True)
        for each in groups.split(taken)
    ]
    tasks.attach(page.groups)
    for group in page.groups:
        group.element = f"old-{group.element}"  # its turn may stand in the log too
    return page


def text_of(chat: Chat, session_id: int, seq: int) -> str | None:
    """The whole text of one message as it was said."""
    found = Message.objects.filter(session_id=session_id, session__chat=chat, seq=seq)
    return found.values_list("text", flat=True).first()


def answer_text(chat: Chat, session_id: int, turn_id: int) -> str:
    """All that a turn answered, as it was written."""
    answers = Message.objects.filter(
        session_id=session_id,
        session__chat=chat,
        turn_id=turn_id,
        role=MessageRole.ASSISTANT,
    ).live()
    texts = answers.order_by("seq").values_list("text", flat=True)
    return "\n\n".join(text for text in texts if text.strip())


# --- Sidebar -------------------------------------------------------------------------------------


@dataclass
class Listed:
    """A chat in the sidebar."""

    chat: Chat
    is_current: bool
    is_running: bool
    is_unread: bool
    has_draft: bool
    is_asking: bool = False  # a command waits for the person's answer


@dataclass
class Bunch:
    """Chats of one heading."""

    key: str
    title: str
    chats: list[Listed] = field(default_factory=list)


def sidebar(
    user_id: int, current: Chat | None = None, *, archived: bool = False, limit: int = LISTED
) -> list[Bunch]:
    """The newest chats of a person, pinned ones first, grouped by when somebody last wrote."""
    busy = Turn.objects.filter(session_id=OuterRef("current_id"), status__in=BUSY_TURN)
    asking = busy.filter(wait_key__startswith="approval:")
    chats = (
        Chat.objects.listed(user_id)
        .filter(archived_at__isnull=not archived)
        .select_related("current")
        .annotate(is_running=Exists(busy), is_asking=Exists(asking))
        .defer("draft")
        .annotate(draft_size=Length("draft"))
        .order_by(F("pinned_at").desc(nulls_last=True), "-active_at", "pk")
    )
    today = timezone.localdate()
    bunches: dict[str, Bunch] = {}
    for chat in chats[:limit]:
        key, title = _bunch(chat, today=today.toordinal())
        is_current = current is not None and chat.pk == current.pk
        bunches.setdefault(key, Bunch(key, title)).chats.append(
            Listed(
                chat,
                is_current=is_current,
                is_running=bool(getattr(chat, "is_running")),  # noqa: B009 - annotated above
                is_unread=not is_current and _is_unread(chat),
                has_draft=getattr(chat, "draft_size") > 0,  # noqa: B009 - annotated above
                is_asking=bool(getattr(chat, "is_asking")),  # noqa: B009 - annotated above
            )
        )
    return list(bunches.values())


def _is_unread(chat: Chat) -> bool:
    session = chat.current
    if session is None:
        return False
    if session.last_seq == 0:  # what ended in an earlier session may be news all the same
        return session.number > 1 and chat.read_session_id is None
    return chat.read_session_id != session.pk or chat.read_seq < session.last_seq


def _bunch(chat: Chat, *, today: int) -> tuple[str, str]:
    if chat.pinned_at is not None:
        return "pinned", _("Pinned")
    day = timezone.localtime(chat.active_at).date()
    age = today - day.toordinal()
    if age <= 0:
        return "today", _("Today")
    if age == 1:
        return "yesterday", _("Yesterday")
    if age <= 7:
        return "week", _("Previous 7 days")
    is_this_year = day.year == (timezone.localdate() - timedelta(days=0)).year
    return f"m{day.year}-{day.month}", date_format(day, "F" if is_this_year else "F Y")


# --- Head, dock ----------------------------------------------------------------------------------


def endpoints() -> list[ModelEndpoint]:
    """The models that a chat may be answered by, the preferred one first."""
    return list(ModelEndpoint.objects.usable("chat")[:50])


def queue(session_id: int) -> list[Turn]:
    """The messages that wait, in order."""
    waiting = Turn.objects.queued().filter(
        session_id=session_id, started_at=None, source=TurnSource.PERSON
    )
    found = waiting.annotate(shown=Left("text", 300), size=Length("text")).defer("text")
    return list(found[:60])
