"""The pages of the chat: each reads through ``selectors``, and changes nothing by a GET."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from processes_app import selectors as processes
from sessions_app import intake
from sessions_app.domain import EndpointKind, Refused
from sessions_app.models import Chat

from . import fragments, selectors, words

LIST_PAGES: Final = 40  # of the list of chats
COMMANDS: Final = (
    *("new", "compact", "undo", "retry", "stop", "status", "tasks", "title", "help"),
)


def _user(request: HttpRequest) -> User:
    user = request.user
    if not isinstance(user, User):
        raise Http404
    return user


def _chat(request: HttpRequest, uid: UUID) -> Chat:
    """The person's chat; one that is not theirs does not exist."""
    user = _user(request)
    chat = selectors.chat_of(user.pk, uid)
    if chat is None:
        raise Http404
    chat.owner = user
    return chat


# --- Pages ---------------------------------------------------------------------------------------


@login_required
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """The chat that somebody wrote in last, or an unused one."""
    user = _user(request)
    newest = Chat.objects.listed(user.pk).filter(archived_at=None).first()
    return redirect("chat", (newest or intake.open_chat(user_id=user.pk)).uid)


@login_required
@require_POST
def new_chat(request: HttpRequest) -> HttpResponse:
    """A chat in which nothing was said yet."""
    return redirect("chat", intake.open_chat(user_id=_user(request).pk).uid)


@login_required
@require_GET
def chat_page(request: HttpRequest, uid: UUID) -> HttpResponse:
    """A chat with its last turns."""
    chat = _chat(request, uid)
    user = _user(request)
    session = chat.current
    pages = selectors.last_pages(chat)
    is_empty = not any(page.groups for page in pages)
    waiting = "" if session is None else fragments.queue_html(session.pk)
    endpoint = chat.endpoint or next(iter(selectors.endpoints()), None) if is_empty else None
    config = {
        "chat": str(chat.uid),
        "socket": f"/ws/chats/{chat.uid}/",
        "session": None if session is None else session.pk,
        "version": 0 if session is None else session.version,
        "chatVersion": chat.version,
        "lastSeq": 0 if session is None else session.last_seq,
        "draft": chat.draft,
        "limit": settings.MAX_MESSAGE_BYTES,
        "commands": list(COMMANDS),
        "home": reverse("home"),
        "login": reverse("login"),
        "words": words.page_words(),
    }
    return render(
        request,
        "web/chat.html",
        {
            "chat": chat,
            "title": fragments.title_of(chat),
            "log": fragments.pages_html(pages, is_staff=user.is_staff),
            "head": fragments.head_html(chat),
            "queue": waiting,
            "sidebar": fragments.sidebar_html(user, chat),
            "is_empty": is_empty and not waiting,
            "is_offline": is_empty and (endpoint is None or endpoint.kind == EndpointKind.OFFLINE),
            "initials": _initials(user),
            "name": _name(user),
            "config": config,
        },
    )


def _name(user: User) -> str:
    return user.get_full_name() or user.get_username()


def _initials(user: User) -> str:
    parts = _name(user).split()
    return "".join(part[0] for part in parts[:2]).upper() or "?"


# --- Fragments -----------------------------------------------------------------------------------


@login_required
@require_GET
def older(request: HttpRequest, uid: UUID) -> HttpResponse:
    """The turns before a row, for the top of the log."""
    chat = _chat(request, uid)
    try:
        session, before = int(request.GET["session"]), int(request.GET["before"])
    except (KeyError, ValueError):
        raise Http404 from None
    pages = selectors.older_pages(chat, session, before)
    return HttpResponse(fragments.pages_html(pages, is_staff=_user(request).is_staff))


@login_required
@require_GET
def version(request: HttpRequest, uid: UUID, rewind: int) -> HttpResponse:
    """What was taken out of the context, to be read before it is brought back."""
    page = selectors.version_of(_chat(request, uid), rewind)
    if page is None:
        raise Http404
    return HttpResponse(fragments.version_html(page))


@login_required
@require_GET
def summary(request: HttpRequest, uid: UUID, pk: int) -> HttpResponse:
    """What the model reads in place of older messages."""
    found = selectors.summary_of(_chat(request, uid), pk)
    if found is None:
        raise Http404
    return HttpResponse(fragments.summary_html(found))


@login_required
@require_GET
def fold(request: HttpRequest, uid: UUID) -> HttpResponse:
    """What a summary would take and leave; or the one that waits for an answer."""
    return HttpResponse(fragments.fold_html(_chat(request, uid)))


@login_required
@require_GET
def text(request: HttpRequest, uid: UUID) -> HttpResponse:
    """The whole text of a message, or of the answer of a turn, as it was written."""
    chat = _chat(request, uid)
    try:
        session = int(request.GET["session"])
        if "turn" in request.GET:
            found: str | None = selectors.answer_text(chat, session, int(request.GET["turn"]))
        else:
            found = selectors.text_of(chat, session, int(request.GET["seq"]))
    except (KeyError, ValueError):
        raise Http404 from None
    if found is None:
        raise Http404
    return HttpResponse(found, content_type="text/plain; charset=utf-8")


@login_required
@require_GET
def sidebar(request: HttpRequest) -> HttpResponse:
    """The list of chats."""
    user = _user(request)
    current = None
    with contextlib.suppress(ValueError):
        current = selectors.chat_of(user.pk, UUID(request.GET.get("chat", "")))
    archived = request.GET.get("archived") == "1"
    asked = request.GET.get("pages", "1")
    pages = min(int(asked), LIST_PAGES) if asked.isdecimal() and len(asked) < 9 else 1
    return HttpResponse(
        fragments.sidebar_html(user, current, archived=archived, pages=max(1, pages))
    )


# --- Changes of a chat ---------------------------------------------------------------------------


def _change(request: HttpRequest, uid: UUID, act: Callable[[int, int], object]) -> HttpResponse:
    """Do something to a person's chat; what is refused is said in words."""
    user = _user(request)
    chat = Chat.objects.filter(uid=uid, owner_id=user.pk, is_hidden=False).only("pk").first()
    if chat is None:
        raise Http404
    try:
        act(chat.pk, user.pk)
    except Refused as refused:
        status = 404 if refused.code == "not_found" else 400
        return JsonResponse({"code": refused.code, "message": refused.message}, status=status)
    return JsonResponse({"ok": True})


def _is_on(request: HttpRequest) -> bool:
    return request.POST.get("on", "1") == "1"


@login_required
@require_POST
def rename(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Give a chat a name."""
    title = request.POST.get("title", "")
    return _change(
        request, uid, lambda pk, user: intake.rename(chat_id=pk, user_id=user, title=title)
    )


@login_required
@require_POST
def pin(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Keep a chat at the top, or not."""
    on = _is_on(request)
    return _change(
        request, uid, lambda pk, user: intake.set_pinned(chat_id=pk, user_id=user, pinned=on)
    )


@login_required
@require_POST
def archive(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Put a chat aside, or back."""
    on = _is_on(request)
    return _change(
        request, uid, lambda pk, user: intake.set_archived(chat_id=pk, user_id=user, archived=on)
    )


@login_required
@require_POST
def delete(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Delete a chat; it can be brought back. While commands run in it, it has to be meant."""
    user = _user(request)
    actor = user.get_username()
    chat = Chat.objects.of(user.pk).filter(uid=uid).only("key").first()
    count = 0 if chat is None else processes.running(chat.key).count()
    if count and request.POST.get("sure") != "1":
        message = ngettext(
            "%d command still runs in this chat. It is ended with the chat.",
            "%d commands still run in this chat. They are ended with the chat.",
            count,
        )
        told = {"code": "running", "message": message % (count,), "running": count}
        return JsonResponse(told, status=409)
    return _change(
        request, uid, lambda pk, user: intake.delete_chat(chat_id=pk, user_id=user, actor=actor)
    )


@login_required
@require_POST
def undelete(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Bring a deleted chat back."""
    actor = _user(request).get_username()
    return _change(
        request, uid, lambda pk, user: intake.undelete_chat(chat_id=pk, user_id=user, actor=actor)
    )


@login_required
@require_POST
def model(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Answer a chat with another model from the next turn on."""
    chosen = request.POST.get("endpoint", "")
    if not chosen.isdecimal() or len(chosen) > 18:
        return JsonResponse({"message": _("This model does not exist any more.")}, status=400)
    return _change(
        request,
        uid,
        lambda pk, user: intake.choose_endpoint(chat_id=pk, user_id=user, endpoint_id=int(chosen)),
    )
