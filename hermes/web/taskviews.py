"""The pages of background work: the log of a process, and a result to be handed on."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from processes_app import selectors as processes
from processes_app.models import ProcessRecord
from sessions_app.models import Chat

from . import fragments, tasks

SHOWN: Final = 200_000  # code points of a log that its page shows; all of it comes as text
PLAIN: Final = "text/plain; charset=utf-8"


def _of(request: HttpRequest, uid: str) -> tuple[Chat, ProcessRecord]:
    """A process, and the chat that it belongs to; what is not theirs does not exist."""
    process = ProcessRecord.objects.filter(uid=uid).first()
    address = "" if process is None else process.origin_chat
    chats = Chat.objects.of(request.user.pk or 0).select_related("current")
    chat = chats.filter(key=address).first()
    if process is None or chat is None:
        raise Http404
    return chat, process


@login_required
@require_GET
def process_log(request: HttpRequest, uid: str) -> HttpResponse:
    """What a process has written, as far as it is kept: a page, or all of it as text."""
    chat, process = _of(request, uid)
    output = processes.output_of(process)
    if request.GET.get("as") == "text":
        made = HttpResponse(output.text, content_type=PLAIN)
        made["Content-Disposition"] = f'inline; filename="{process.uid}.txt"'
        return made
    current = chat.current
    is_past = current is None or process.origin_session != current.key
    return render(
        request,
        "web/process.html",
        {
            "chat": chat,
            "title": fragments.title_of(chat),
            "proc": tasks.proc_of(process, is_past=is_past),
            "process": process,
            "output": output,
            "text": output.text[-SHOWN:],
            "is_cut": len(output.text) > SHOWN,
        },
    )


@login_required
@require_GET
def result(request: HttpRequest, uid: UUID, pk: int) -> HttpResponse:
    """The result of a command as a text that a person may change and send."""
    chat = Chat.objects.of(request.user.pk or 0).filter(uid=uid).first()
    event = None if chat is None else processes.event_of(chat.key, pk)
    if event is None:
        raise Http404
    return HttpResponse(tasks.quote_of(tasks.news_of(event)), content_type=PLAIN)
