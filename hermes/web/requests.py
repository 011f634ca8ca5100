"""What each frame of a client does: one call of an intake, and the frames that answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from hermes.lib.db import retrying
from hermes.lib.viewers import Viewer, signed_out
from sessions_app import intake
from sessions_app.domain import Code, Refused
from sessions_app.models import Chat, Turn

from . import answering, commands, compacting, fragments, frames
from .cursor import Frame


class SignedOut(Exception):
    """The person's login has ended."""


@dataclass
class Outcome:
    """The answers to a command, and the turn that was asked to stop by it.

    ``queued`` is the session of a new turn and the version that it was queued at, if there is one.
    """

    frames: list[Frame] = field(default_factory=list)
    stopping: Turn | None = None
    queued: tuple[int, int] | None = None


def carry_out(viewer: Viewer, chat_id: int, command: frames.Parsed) -> Outcome:
    """Do what a client asks, for a person who is still signed in.

    Raises:
        SignedOut: before anything was done.
        Refused: with the reason for the person.
    """
    if signed_out([viewer]):
        raise SignedOut
    who: dict[str, Any] = {"chat_id": chat_id, "user_id": viewer.user_id}
    signed = {**who, "actor": viewer.name}
    match command:
        case frames.Submit(ref, key, text) if commands.is_command(text):
            reply = commands.run(commands.Asked(**signed, id=key), text)
            return _told(reply, ref)
        case frames.Submit(ref, key, text):
            said = commands.unescaped(text)
            accepted = intake.accept_turn(**who, client_turn_id=key, text=said)
            return _accepted(accepted.turn, ref, key, known=not accepted.is_new)
        case frames.Stop(_ref):
            turn = intake.stop_turn(**signed)
            if turn is None:
                raise Refused(Code.NOTHING_RUNS, _("Nothing is running."))
            return Outcome(stopping=turn)
        case frames.Continue(ref, key):
            turn = intake.continue_turn(**signed, client_turn_id=key)
            return _accepted(turn, ref, key)
        case frames.Regenerate(ref, key, turn_id):
            turn = intake.regenerate(**signed, turn_id=turn_id, client_turn_id=key)
            return _accepted(turn, ref, key)
        case frames.Edit(ref, key, turn_id, text):
            turn = intake.edit_message(**signed, turn_id=turn_id, client_turn_id=key, text=text)
            return _accepted(turn, ref, key)
        case frames.Rewind(ref, turn_id):
            rewind, said = intake.rewind_to(**signed, turn_id=turn_id)
            text = _("What came after this point is out of the context.")
            return _told(commands.undone(rewind, said, text), ref)
        case frames.BringBack(_ref, rewind):
            intake.bring_back(**signed, rewind_id=rewind)
        case frames.EditQueued(_ref, turn_id, text):
            intake.edit_queued(**who, turn_id=turn_id, text=text)
        case frames.DeleteQueued(_ref, turn_id):
            intake.delete_queued(**signed, turn_id=turn_id)
        case frames.Promote(_ref, turn_id):
            return Outcome(stopping=intake.promote(**signed, turn_id=turn_id))
        case frames.NewSession(ref, key):
            return _told(commands.new(commands.Asked(**signed, id=key)), ref)
        case frames.Branch(ref, session, seq, key):
            made = intake.branch(**who, client_id=key, seq=seq, session_id=session)
            return Outcome([{"type": "chat.branched", "ref": ref, "chat": made["chat"]}])
        case frames.Compact(ref, focus, body, preview) if preview is not None:
            return _told(compacting.adopt(**signed, attempt_id=preview, body=body), ref)
        case frames.Compact(ref, focus, _body, _preview):
            return _told(compacting.request(**signed, focus=focus), ref)
        case frames.Preview(ref, focus):
            return _told(compacting.request(**signed, focus=focus, wants_preview=True), ref)
        case frames.CancelCompaction(_ref):
            compacting.cancel(**signed)
        case frames.UndoSummary(ref, summary):
            return _told(compacting.undo(**signed, summary_id=summary), ref)
        case frames.AnswerAsk(_ref, approval, said):
            answering.answer(**signed, approval_id=approval, said=said)
        case frames.Kill(_ref, uid):
            answering.kill(**signed, uid=uid)
        case frames.TypeInto(_ref, uid, key, text):
            answering.type_into(**who, uid=uid, key=key, text=text)
        case frames.Read(_ref, session, seq):
            intake.mark_read(**who, session_id=session, seq=seq)
        case _:
            pass
    return Outcome()


def _accepted(turn: Turn, ref: str | None, key: str, *, known: bool = False) -> Outcome:
    told = {"turn": turn.pk, "status": str(turn.status), "known": known}
    answer = {"type": "turn.accepted", "ref": ref, "id": key, **told}
    return Outcome([answer], queued=None if known else (turn.session_id, turn.changed))


def _told(reply: commands.Reply, ref: str | None) -> Outcome:
    """A notice, and the turn that it stops."""
    told = dict(reply)
    stop = told.pop("stop", None)
    asked = Turn.objects.filter(pk=stop, status="running", stop_asked_at__isnull=False)
    if ref is not None:
        told["ref"] = ref
    told["html"] = fragments.notice_html(told["code"], told["level"], told["text"])
    return Outcome([{"type": "notice", **told}], stopping=asked.first() if stop else None)


@retrying
def find_chat(viewer: Viewer, uid: str) -> tuple[int, int | None] | None:
    """A person's chat and its current session; None if it does not exist for them."""
    found: tuple[int, int | None] | None = (
        Chat.objects.of(viewer.user_id).filter(uid=uid).values_list("pk", "current_id").first()
    )
    return found
