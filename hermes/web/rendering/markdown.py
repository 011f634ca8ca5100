"""One piece of Markdown as safe HTML."""

from __future__ import annotations

import functools
from collections.abc import MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from django.utils.html import escape
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin

from . import code, formulas
from .sanitiser import clean
from .signs import visible

LONGEST: Final = 64 * 1024  # code points of one block; a longer one is shown as plain text
CACHED: Final = 8 * 1024  # code points of a block whose HTML is kept in the process
NESTING: Final = 20  # lists in lists, quotes in quotes
SIGNS: Final = 8_000  # signs of markup in one block outside code: more is no prose

_HEADINGS: Final = {"h1": "h2", "h2": "h3", "h3": "h4", "h4": "h4", "h5": "h4", "h6": "h4"}
_ALIGNED: Final = {"text-align:right": "n", "text-align:center": "c"}


def _may_link(url: str) -> bool:
    """Only addresses that say where they lead, and lead out."""
    return url.lower().startswith(("http://", "https://", "mailto:"))


def _open_cell(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    align = str(token.attrs.pop("style", ""))
    if align in _ALIGNED:
        token.attrSet("class", _ALIGNED[align])
    if token.tag == "th":
        token.attrSet("scope", "col")
    return self.renderToken(tokens, index, options, env)


def _heading(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    tokens[index].tag = _HEADINGS[tokens[index].tag]  # h1 is the title of the page
    return self.renderToken(tokens, index, options, env)


def _open_table(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    label = escape(_("Table"))
    return f'<div class="table" tabindex="0" role="region" aria-label="{label}"><table>\n'


def _close_table(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    return "</table></div>\n"


def _fence(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    return code.figure(tokens[index].content, tokens[index].info)


def _math(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    is_display = token.type != "math_inline"
    html = formulas.formula(token.content, is_display=is_display)
    if token.type == "math_block":
        return f'<div class="math">{html}</div>\n'
    return html


def _image(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    """A picture is never loaded: it is a link that says where it is."""
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    alt = self.renderInlineAsText(token.children or [], options, env)
    host = urlsplit(source).hostname or ""
    words = " · ".join(part for part in (alt or _("Picture"), host) if part)
    return f'<a class="remote" href="{escape(source)}">{escape(words)}</a>'


def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "linkify": True, "maxNesting": NESTING, "breaks": False}
    ).enable(["table", "strikethrough", "linkify"])
    parser.validateLink = _may_link  # type: ignore[method-assign] # the hook that is meant for it
    if parser.linkify is None:
        raise RuntimeError("linkify-it-py is missing")
    parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    parser.linkify.add("ftp:", None)
    parser.linkify.add("//", None)
    dollarmath_plugin(
        parser,
        allow_labels=False,
        allow_space=False,
        allow_digits=False,
        allow_blank_lines=False,
        double_inline=True,
    )
    for name in ("math_inline", "math_inline_double", "math_block"):
        parser.add_render_rule(name, _math)
    for name in ("th_open", "td_open"):
        parser.add_render_rule(name, _open_cell)
    for name in ("heading_open", "heading_close"):
        parser.add_render_rule(name, _heading)
    for name in ("fence", "code_block"):
        parser.add_render_rule(name, _fence)
    parser.add_render_rule("table_open", _open_table)
    parser.add_render_rule("table_close", _close_table)
    parser.add_render_rule("image", _image)
    return parser


_PARSER: Final = _parser()


def plain(source: str) -> str:
    """Text as it is, for what is too much to be read as Markdown."""
    return f'<p class="plain">{escape(visible(source))}</p>\n'


def _is_too_much(source: str) -> bool:
    if len(source) > LONGEST:
        return True
    if len(source) < SIGNS or source.lstrip().startswith(("```", "~~~")):
        return False
    return sum(source.count(sign) for sign in "[]*_`$<!~&(") > SIGNS


def _render(source: str, env: MutableMapping[str, Any]) -> str:
    if _is_too_much(source):
        return plain(source)
    try:
        tokens = _PARSER.parse(visible(source), env)
        if any(token.level >= NESTING - 1 for token in tokens):
            return plain(source)  # the parser leaves out what is nested deeper
        return clean(_PARSER.renderer.render(tokens, _PARSER.options, env))
    except RecursionError:
        return plain(source)


@functools.lru_cache(maxsize=2048)
def _kept(source: str, _language: str | None) -> str:
    return _render(source, {})


def render(source: str, references: MutableMapping[str, Any] | None = None) -> str:
    """Markdown as safe HTML; ``references`` are link targets defined elsewhere in the text.

    >>> render("**a** <b>")
    '<p><strong>a</strong> &lt;b&gt;</p>\\n'
    """
    if references:
        return _render(source, {"references": dict(references)})
    if len(source) <= CACHED:
        return _kept(source, get_language())
    return _render(source, {})


def references_in(source: str) -> dict[str, Any]:
    """The link targets that a piece of Markdown defines."""
    env: dict[str, Any] = {}
    if not _is_too_much(source):
        _PARSER.parse(source, env)
    found: dict[str, Any] = env.get("references", {})
    return found
