"""docs/operations.md says of every code with which a turn can end what it means and what to do."""

from __future__ import annotations

import ast
import re

from hermes.lib.chat import ErrorKind
from hermes.web import words
from sessions_app import domain
from sessions_app.transcript import turns

from .sources import called, modules, page, section

# By name, what ends a turn, and the place of its code among the positional arguments.
ENDERS = {"_end": None, "_fail": 2, "end": None, "end_locked": None, "end_unheld": None}
SESSION_ENDERS = {"_end_current", "end_session"}
# end_idle refuses a session with an open turn, so no turn ever ends with it.
NEVER_ON_A_TURN = {"idle_timeout"}


def _values(node: ast.AST | None) -> set[str]:
    """The codes that an expression names: texts, and members of ``Code`` and ``EndReason``."""
    found = set()
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
        if isinstance(each, ast.Attribute):
            for enum in (domain.Code, domain.EndReason):
                if ast.unparse(each.value).split(".")[-1] == enum.__name__:
                    found.add(str(enum[each.attr]))
    return found


def _unpacked(node: ast.Assign) -> set[str]:
    """The codes of ``to, code = …, "…"``."""
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return set()
    names = [getattr(each, "id", "") for each in target.elts]
    return _values(value.elts[names.index("code")]) if "code" in names else set()


def written() -> set[str]:
    """Every code that the code of sessions_app writes into ``Turn.error_code`` by name."""
    found: set[str] = set()
    for path, tree in modules().items():
        if not path.startswith("sessions_app/"):
            continue
        for node in ast.walk(tree):
            if called(node) in ENDERS:
                place = ENDERS[called(node)]
                if place is not None and len(node.args) > place:
                    found |= _values(node.args[place])
                for keyword in node.keywords:
                    if keyword.arg in {"code", "reason"}:
                        found |= _values(keyword.value)
            if called(node) in SESSION_ENDERS and len(node.args) > 1:
                found |= _values(node.args[1])
            if isinstance(node, ast.keyword) and node.arg == "error_code":
                found |= _values(node.value)
            if path.endswith("runner.py") and isinstance(node, ast.Assign):
                found |= _unpacked(node)
    return (found | {str(finish) for finish in turns.UNFINISHED}) - {""}


def documented() -> list[str]:
    text = section(page("docs/operations.md"), "How a turn ends")
    return re.findall(r"^#### `(\w+)`$", text, re.M)


def test_the_codes_are_found() -> None:
    assert {"stopped", "worker_lost", "shutdown", "ceiling", "internal", "dropped"} <= written()
    assert {"ended", "taken_back", "session_reset", "deleted", "length"} <= written()


def test_every_code_has_a_section() -> None:
    possible = written() - NEVER_ON_A_TURN | {str(kind) for kind in ErrorKind}
    assert possible - set(documented()) == set()


def test_every_section_is_about_a_code_and_says_what_to_do() -> None:
    codes = documented()
    possible = written() | {str(kind) for kind in ErrorKind}
    assert len(codes) == len(set(codes))
    assert set(codes) - possible == set()
    for code in codes:
        text = section(page("docs/operations.md"), f"`{code}`")
        assert re.search(r"\*\*Operator:\*\* \S", text), code


def test_every_code_has_words_for_the_person() -> None:
    possible = written() - NEVER_ON_A_TURN | {str(kind) for kind in ErrorKind}
    assert possible - set(words.ENDS) == set()
    assert {str(code) for code in domain.Code} - set(words.REFUSED) == set()
    for each in (*words.ENDS.values(), *words.REFUSED.values()):
        assert str(each.what).strip()
