"""The product's settings with a channel layer that loses hints."""

from __future__ import annotations

from hermes.settings import *  # noqa: F403
from hermes.settings import CHANNEL_LAYERS

CHANNEL_LAYERS["default"]["BACKEND"] = "tests.lossy.LossyLayer"
