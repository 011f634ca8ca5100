"""What stands in every request before the messages: the system prompt and the agent's tools."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from django.conf import settings
from django.utils.module_loading import import_string

from hermes.lib import tokens
from hermes.lib.chat import ToolSpec
from sessions_app.domain import Tool


def tools() -> Mapping[str, Tool]:
    """The agent's tools by name, in the order of ``HERMES_TOOLS``."""
    return _tools(tuple(settings.HERMES_TOOLS))


def head_tokens() -> int:
    """About how many tokens the system prompt and the descriptions of all tools take."""
    return system_tokens() + tools_tokens()


def system_tokens() -> int:
    """About how many tokens the system prompt takes."""
    return tokens.estimate(settings.HERMES_SYSTEM_PROMPT)


def tools_tokens() -> int:
    """About how many tokens the descriptions of the agent's tools take."""
    return _tools_tokens(tuple(settings.HERMES_TOOLS))


def described(specs: Iterable[ToolSpec]) -> int:
    """About how many tokens descriptions of tools take."""
    return sum(
        tokens.estimate(f"{spec.name} {spec.description} {dict(spec.parameters)}") for spec in specs
    )


@functools.cache
def _tools(names: tuple[str, ...]) -> Mapping[str, Tool]:
    made = [import_string(name)() for name in names]
    return {tool.spec.name: tool for tool in made}


@functools.cache
def _tools_tokens(names: tuple[str, ...]) -> int:
    return described(tool.spec for tool in _tools(names).values())
