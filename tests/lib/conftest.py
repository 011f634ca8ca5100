"""Fixtures of the tests of ``hermes.lib``."""

from __future__ import annotations

from tests.scripted.fixtures import scripted

__all__ = ["scripted"]
