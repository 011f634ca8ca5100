"""The ASGI application that Daphne serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any, Final

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes.settings")

pages = get_asgi_application()  # sets Django up; what follows needs it

from hermes.web.consumers import RESTART  # noqa: E402
from hermes.web.poller import hub  # noqa: E402
from hermes.web.routing import sockets  # noqa: E402

LEAVE_SECONDS: Final = 4.0

application = ProtocolTypeRouter({"http": pages, "websocket": sockets})


async def _leave() -> None:
    """Wait until the last socket was told good-bye and has closed, but not for long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_SECONDS):
            await hub().emptied()
    await asyncio.sleep(0.1)  # for the last bytes to leave


def _begin_to_leave() -> Any:
    """Refuse new sockets; Daphne then ends those that are open, each says good-bye."""
    from twisted.internet.defer import Deferred

    hub().is_leaving = True
    return Deferred.fromFuture(asyncio.ensure_future(_leave()))


if "twisted.internet.reactor" in sys.modules:  # served by Daphne
    from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
    from twisted.internet import reactor

    class SaysWhy(WebSocketProtocol):  # type: ignore[misc]  # daphne has no types
        """Closes with the code that says why: 1009 and 1002 where a client breaks a rule, which
        autobahn answers by dropping the connection, and 1012, which it takes from no application.
        """

        def onConnect(self, request: Any) -> Any:
            """Begin a connection."""
            self.failByDrop = False
            return super().onConnect(request)

        def serverClose(self, code: int | None = None) -> None:
            """Close the socket."""
            if code == RESTART and self.state == self.STATE_OPEN:
                self.sendCloseFrame(code=code, isReply=False)
            else:
                super().serverClose(code)

    WebSocketFactory.protocol = SaysWhy
    reactor.addSystemEventTrigger("before", "shutdown", _begin_to_leave)  # type: ignore[arg-type]
