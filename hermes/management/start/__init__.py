"""The start command: what runs, in which order, and how it ends."""

from __future__ import annotations
