"""Code as a figure: what language, a button that copies, the coloured text."""

from __future__ import annotations

from typing import Final

from django.utils.html import escape
from django.utils.translation import gettext as _
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

COLOURED: Final = 32 * 1024  # code points; longer code stays without colours

_FORMATTER: Final[HtmlFormatter[str]] = HtmlFormatter(nowrap=True)


def _lexer(language: str) -> Lexer | None:
    if not language or len(language) > 40:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def figure(source: str, info: str = "") -> str:
    """A block of code; ``info`` is what stands behind the fence: a language, then a title."""
    language, _space, title = info.strip().partition(" ")
    lexer = _lexer(language.lower())
    source = source.removesuffix("\n")
    name = str(lexer.name) if lexer is not None else language[:40]
    if lexer is not None and len(source) <= COLOURED:
        body = highlight(source, lexer, _FORMATTER).removesuffix("\n")
    else:
        body = escape(source)
    label = escape(name or _("Code"))
    head = f"<b>{label}</b>" + (f" · {escape(title.strip()[:120])}" if title.strip() else "")
    return (
        f'<figure class="code"><figcaption class="code__head"><span>{head}</span>'
        '<button class="btn btn--quiet btn--sm btn--copy" type="button" data-copy="">'
        f"<span>{escape(_('Copy'))}</span></button></figcaption>"
        f'<pre tabindex="0" role="region" aria-label="{label}"><code>{body}</code></pre></figure>\n'
    )
