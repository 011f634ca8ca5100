"""The tool that comes with Hermes: harmless, without side effects."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hermes.lib.chat import ToolSpec

from .domain import Done, ToolCallFacts


class CurrentTime:
    """Tells the time, in UTC or in a zone that is asked for."""

    spec = ToolSpec(
        name="current_time",
        description="The current date and time. Give an IANA zone such as Europe/Berlin, or none.",
        parameters={
            "type": "object",
            "properties": {"zone": {"type": "string", "description": "IANA time zone"}},
            "additionalProperties": False,
        },
    )

    def __call__(self, call: ToolCallFacts) -> Done:
        """The time as ISO 8601 with the zone's name."""
        zone = str(call.arguments.get("zone") or "UTC")
        try:
            now = datetime.now(ZoneInfo(zone) if zone != "UTC" else UTC)
        except (ZoneInfoNotFoundError, ValueError):
            return Done(f"There is no time zone {zone!r}.", ok=False)
        return Done(f"{now.isoformat(timespec='seconds')} ({zone})")
