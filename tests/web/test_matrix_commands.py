"""Who may steer what by socket: every frame and every written command, for all but the owner.

That a socket to a chat of somebody else is not even opened is shown in ``tests/socket``; here what
a frame would do is refused as well, whatever door it came through.
"""

from __future__ import annotations

import dataclasses

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.test import Client

from compression_app.models import CompactionAttempt
from hermes.dashboard import roles
from hermes.lib.viewers import Viewer, viewer_of
from hermes.web import commands, frames, requests
from processes_app.models import Approval, CompletionEvent, ProcessInput, ProcessRecord
from sessions_app.domain import Refused
from sessions_app.models import Chat, History, Message, Session, Turn
from tests import factories
from tests.processes import facts

pytestmark = pytest.mark.django_db

PERSONAS = ("person", "staff", "support", "auditor", "operator", "superuser")
ANSWERED_BY_THE_SOCKET = {frames.Ack, frames.Ping, frames.Bad}  # they carry nothing out
# Answered as where nothing was said yet, or nothing runs: it tells nothing of the chat.
AS_IN_AN_EMPTY_CHAT = {frames.Read, frames.Compact, frames.Preview, frames.CancelCompaction}
ABSENT = {"not_found", "nothing_runs"}


def kinds() -> list[type[frames.Command]]:
    """Every frame that asks for something."""
    return [kind for kind in frames.Command.__subclasses__() if kind not in ANSWERED_BY_THE_SOCKET]


@pytest.fixture
def theirs():
    """A chat with a queued turn, a process that runs, and an open question."""
    state = facts.running(wants_pty=True)
    turn = factories.say(state.chat, "wait for me")
    approval = Approval.objects.create(
        turn_id_meant=turn.pk,
        call_id="c",
        origin_chat=state.chat.key,
        origin_session=state.session.key,
        owner_id_meant=state.chat.owner_id,
        command="make",
        until="2030-01-01T00:00Z",
    )
    named = {
        "turn": turn.pk,
        "session": state.session.pk,
        "seq": 1,
        "id": "matrix",
        "text": "steered",
        "approval": approval.pk,
        "answer": "once",
        "process": state.process.uid,
        "rewind": 1,
        "summary": 1,
    }
    return state, named


@pytest.fixture
def viewers() -> dict[str, Viewer]:
    roles.grant(apps)
    made = {}
    for name in PERSONAS:
        person = factories.person(
            f"a-{name}", is_staff=name != "person", is_superuser=name == "superuser"
        )
        if name.title() in roles.ROLES:
            person.groups.add(Group.objects.get(name=name.title()))
        client = Client()
        client.force_login(person)
        made[name] = viewer_of(client.session.session_key)
    return made


def everything() -> list[list[dict]]:
    """All that a frame could change."""
    models = (
        *(Chat, Session, Turn, Message, History, CompactionAttempt),
        *(ProcessRecord, ProcessInput, CompletionEvent, Approval),
    )
    return [list(model.objects.order_by("pk").values()) for model in models]


def frame(kind: type[frames.Command], named: dict) -> frames.Command:
    known = {field.name for field in dataclasses.fields(kind)}
    values = {name: value for name, value in named.items() if name in known}
    if kind is frames.Compact:
        values = {}
    return kind(ref="r", **values)


def test_what_belongs_to_others_is_steered_by_nobody(theirs, viewers):
    state, named = theirs
    asked = [frame(kind, named) for kind in kinds()]
    asked += [frames.Submit("r", f"c{n}", f"/{n}") for n in commands.COMMANDS]
    before, cells, wrong = everything(), 0, []
    for persona, viewer in viewers.items():
        for command in asked:
            cells += 1
            try:
                requests.carry_out(viewer, state.chat.pk, command)
            except Refused as refused:
                if refused.code not in ABSENT:
                    wrong.append((persona, command, refused.code))
            else:
                if type(command) not in AS_IN_AN_EMPTY_CHAT:
                    wrong.append((persona, command, "done"))
    print(f"matrix: {cells} cells of frames and commands")
    assert wrong == []
    assert everything() == before
    assert cells > 150


def test_the_owner_may(theirs):
    state, named = theirs
    client = Client()
    client.force_login(state.chat.owner)
    viewer = viewer_of(client.session.session_key)
    requests.carry_out(viewer, state.chat.pk, frame(frames.Kill, named))
    assert ProcessRecord.objects.get(pk=state.process.pk).kill_asked_at is not None
