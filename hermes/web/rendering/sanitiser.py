"""The one allow-list that everything rendered goes through, last."""

from __future__ import annotations

from typing import Final

import nh3

_TEXT: Final = {
    *("p", "br", "hr", "strong", "em", "s", "blockquote", "ul", "ol", "li", "h2", "h3", "h4"),
    *("a", "code", "pre", "span", "div", "b", "figure", "figcaption", "button"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_MATH: Final = {
    *("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "ms", "mfrac", "msqrt", "mroot"),
    *("mstyle", "merror", "mpadded", "mphantom", "msub", "msup", "msubsup", "munder", "mover"),
    *("munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd", "menclose", "mfenced"),
}
_MATH_ATTRIBUTES: Final = {
    *("display", "mathvariant", "stretchy", "fence", "separator", "lspace", "rspace", "accent"),
    *("movablelimits", "largeop", "minsize", "maxsize", "symmetric", "form", "linethickness"),
    *("columnalign", "rowspacing", "columnspacing", "columnlines", "rowlines", "displaystyle"),
    *("scriptlevel", "width", "height", "depth", "open", "close", "separators", "notation"),
}

_CLEANER: Final = nh3.Cleaner(
    tags=_TEXT | _MATH,
    clean_content_tags={"script", "style"},
    attributes={
        "a": {"href", "class"},
        "ol": {"start"},
        "th": {"class", "scope"},
        "td": {"class"},
        "pre": {"tabindex", "role", "aria-label", "class"},
        "div": {"tabindex", "role", "aria-label", "class"},
        "button": {"type", "class", "data-copy"},
        "figure": {"class"},
        "figcaption": {"class"},
        "span": {"class"},
        "p": {"class"},
        **{tag: set(_MATH_ATTRIBUTES) for tag in _MATH},
    },
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
)


def clean(html: str) -> str:
    """The HTML with nothing in it that could run, load or send anything by itself."""
    return _CLEANER.clean(html)
