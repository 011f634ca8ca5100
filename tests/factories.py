"""Rows for tests, made as the product would have made them."""

from __future__ import annotations

import functools
import itertools

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Permission

from sessions_app import intake
from sessions_app.models import Chat

_numbers = itertools.count(1)


def person(name: str = "", **columns):
    """A user who may log in with the password ``pass``."""
    return get_user_model().objects.create(
        username=name or f"person{next(_numbers)}", password=_hashed(), **columns
    )


def operator(client):
    """Staff who may see every list and the desk, and change nothing; the client is theirs."""
    user = person("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return user


@functools.cache
def _hashed() -> str:
    return make_password("pass")


def chat(owner=None) -> Chat:
    """A chat to which nothing was sent."""
    return intake.create_chat(user_id=(owner or person()).pk)


def say(chat: Chat, text: str, client_id: str = ""):
    """Accept a turn of the owner."""
    return intake.accept_turn(
        chat_id=chat.pk,
        user_id=chat.owner_id,
        client_turn_id=client_id or f"c{next(_numbers)}",
        text=text,
    ).turn
