"""What HTML may never hold on our pages, looked for in the tree that a browser would build."""

from __future__ import annotations

import html5lib

FORBIDDEN = frozenset(
    {
        *("script", "style", "iframe", "frame", "object", "embed", "form", "input", "textarea"),
        *("select", "meta", "link", "base", "svg", "img", "image", "video", "audio", "source"),
        *("template", "annotation-xml", "foreignobject", "portal", "dialog", "noscript", "use"),
    }
)
LOADS = frozenset({"src", "srcset", "poster", "background", "action", "formaction", "style"})
SCHEMES = ("http://", "https://", "mailto:")


def problems(html: str, *, allowed: frozenset[str] = frozenset()) -> list[str]:
    """Everything in it that could run, load or send, in words."""
    tree = html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False)
    found = []
    for node in tree.iter():
        if not isinstance(node.tag, str):
            continue
        tag = node.tag.rpartition("}")[2].lower()
        if tag in FORBIDDEN and tag not in allowed:
            found.append(f"element {tag}")
        for name, value in node.attrib.items():
            name = name.rpartition("}")[2].lower()
            if name.startswith("on") or name in LOADS:
                found.append(f"{tag}[{name}]")
            if name == "href" and tag not in allowed and not value.lower().startswith(SCHEMES):
                found.append(f"{tag}[href={value}]")
            if name == "id" and tag not in allowed:
                found.append(f"{tag}[id={value}]")
    return found
