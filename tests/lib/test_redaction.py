"""Secrets do not survive redaction, in text or in logs."""

from __future__ import annotations

import io
import logging

import pytest

from hermes.lib.redaction import LiveSecrets, RedactingFilter, live, redact

SECRETS = [
    "sk-proj-ABCdef1234567890abcdef",
    "sk-ant-api03-ABCDEF_1234567890-abcdef",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 9,
    "glpat-" + "a1B2c" * 5,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "Sy0123456789" * 3,
    "hf_" + "abcDEF123" * 4,
    "gsk_" + "abcDEF123" * 4,
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF-123_x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEow, cut off",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda s: s[:12])
def test_what_looks_like_a_secret_is_redacted(secret: str) -> None:
    for text in (secret, f"key={secret}", f'"{secret}" was refused'):
        shown = redact(text)
        assert secret not in shown
        assert secret[-8:] not in shown
        assert "[redacted]" in shown


def test_what_stands_around_a_secret_stays() -> None:
    assert redact("Authorization: Bearer abc.DEF-123456 (401)") == (
        "Authorization: Bearer [redacted] (401)"
    )
    assert redact("postgresql://me:hun:ter2@db:5432/x") == "postgresql://[redacted]@db:5432/x"
    assert redact("redis://:secret@127.0.0.1:6379/0") == "redis://[redacted]@127.0.0.1:6379/0"


@pytest.mark.parametrize(
    "text",
    [
        "A bearer of good news came to the basic question of mask-making.",
        "https://example.org/a:b and mail me@example.org",
        "risk-assessment-of-the-whole-project",
        "see 12:30 // note: a@b",
    ],
)
def test_plain_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_the_longest_secret_goes_first() -> None:
    assert redact("canary-1234-more", ["canary-1234", "canary-1234-more"]) == "[redacted]"


def test_a_short_secret_does_not_blot_out_words() -> None:
    assert redact("a cat", ["a", ""]) == "a cat"


def test_a_long_text_is_redacted_quickly() -> None:
    import time

    started = time.perf_counter()
    redact("://" * 100_000 + "sk-" * 100_000 + "eyJ" * 100_000, ["canary-1234"])
    assert time.perf_counter() - started < 2


def test_every_part_of_a_log_record_is_redacted() -> None:
    live.add("canary-in-the-log")
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter())
    logger = logging.getLogger("tests.redaction")
    logger.propagate = False
    logger.addHandler(handler)
    logger.warning("plain canary-in-the-log")
    logger.warning("argument %s", "canary-in-the-log")
    logger.warning("does not fit %d canary-in-the-log", "x")
    try:
        raise ValueError("canary-in-the-log")
    except ValueError:
        logger.exception("failed", stack_info=True)
    assert "canary" not in out.getvalue()
    assert out.getvalue().count("[redacted]") >= 4
    assert "Traceback" in out.getvalue()


def test_the_registry_does_not_show_what_it_holds() -> None:
    secrets = LiveSecrets()
    secrets.add("canary-1234", "", "no")
    assert "canary" not in repr(secrets)
    assert secrets.redact("a canary-1234 no") == "a [redacted] no"
