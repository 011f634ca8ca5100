"""What the compaction tests have: models, a worker."""

from __future__ import annotations

from tests.compression.conftest import models, scripted, worker

__all__ = ["models", "scripted", "worker"]
