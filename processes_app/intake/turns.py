"""What a turn leaves to be done when it has ended."""

from __future__ import annotations

from django.db.models import Exists, OuterRef

from hermes.lib.hints import enqueue
from processes_app import tasks
from processes_app.models import UNSETTLED, CompletionEvent
from sessions_app.models import Session

from .delegations import follow_delegation
from .events import settle_soon
from .processes import end_of_turn, left_by


def follow_turn(*, session_id: int, turn_id: int) -> None:
    """End what belonged to a turn, settle the news that it told or held up, tell who delegated.

    Nearly every turn leaves nothing, and that costs one statement however long the history is.
    """
    unsettled = CompletionEvent.objects.filter(status__in=UNSETTLED)
    asked = Session.objects.filter(pk=session_id).values_list(
        "chat__key",
        "chat__delegated_by",
        Exists(left_by(turn_id)),
        Exists(unsettled.filter(origin_chat=OuterRef("chat__key"))),
        Exists(unsettled.filter(turn_id_meant=turn_id)),
    )
    found = asked.first()
    if found is None:
        return
    address, delegated_by, has_children, has_news, was_report = found
    if has_children:
        end_of_turn(turn_id)
    if has_news:
        enqueue(tasks.deliver, address)
    if was_report:  # it may have told what another chat's processes did
        settle_soon(turn_id=turn_id, but=address if has_news else None)
    if delegated_by is not None:
        follow_delegation(session_id=session_id)
