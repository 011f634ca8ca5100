"""``python -m tests.scripted --port 0``: prints its address as one line of JSON, then serves."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal

from .server import State, serve


async def main(port: int, strict: bool) -> None:
    state = State()
    state.strict = strict
    server = await serve(state, port)
    host, port = server.sockets[0].getsockname()[:2]
    address = f"http://{host}:{port}"
    print(json.dumps({"address": address, "base_url": f"{address}/v1"}), flush=True)
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    await end.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lenient", action="store_true", help="count violations, refuse nothing")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(options.port, not options.lenient))
