"""A channel layer that loses, doubles and delays what is sent over it; its numbers come from
``TEST_LAYER_DROP`` (0 to 1)."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer

DROP = float(os.environ.get("TEST_LAYER_DROP", "0"))


class LossyLayer(RedisPubSubChannelLayer):
    """Loses a share of all hints; of the others a tenth comes twice, a tenth late."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        if random.random() < DROP:
            return
        layer = self._get_layer()
        if random.random() < 0.1:
            asyncio.get_running_loop().create_task(self._late(group, message))
            return
        await layer.group_send(group, message)
        if random.random() < 0.1:
            await layer.group_send(group, message)

    async def _late(self, group: str, message: dict[str, Any]) -> None:
        await asyncio.sleep(random.uniform(0, 0.3))
        await self._get_layer().group_send(group, message)
