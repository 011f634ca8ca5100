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

from hermes.dashboard import heartbeats  # noqa: E402
from hermes.dashboard import routing as of_the_desk  # noqa: E402
from hermes.lib.sockets import LEAVING, RESTART, TOO_BIG, guarded  # noqa: E402
from hermes.web import routing as of_chats  # noqa: E402

LEAVE_SECONDS: Final = 4.0

application = ProtocolTypeRouter(
    {"http": pages, "websocket": guarded([*of_chats.sockets, *of_the_desk.sockets])}
)


def _wire_daphne() -> None:
    """Let Daphne say why it closes a socket, and leave only when all have been told."""
    from daphne.cli import CommandLineInterface
    from daphne.server import Server
    from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    connected: set[Any] = set()
    emptied = asyncio.Event()

    class SaysWhy(WebSocketProtocol):  # type: ignore[misc]  # daphne has no types
        """Closes with the code that says why: 1009 and 1002 where a client breaks a rule, which
        autobahn answers by dropping the connection; 1009 and 1012 also from an application, from
        which it takes neither.
        Long answers are told in one message, however long.
        """

        maxMessagePayloadSize: int  # set for each connection; 0 is no limit

        def onConnect(self, request: Any) -> Any:
            """Begin a connection."""
            self.failByDrop = False
            connected.add(self)
            return super().onConnect(request)

        def onClose(self, *how: Any) -> None:
            """The connection is gone, on both sides."""
            connected.discard(self)
            if not connected:
                emptied.set()
            super().onClose(*how)

        def sendMessage(self, *message: Any, **how: Any) -> None:
            """Send a message of any size: the limit is for what clients send."""
            limit, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
            try:
                super().sendMessage(*message, **how)
            finally:
                self.maxMessagePayloadSize = limit

        def serverClose(self, code: int | None = None) -> None:
            """Close the socket."""
            if code in {TOO_BIG, RESTART} and self.state == self.STATE_OPEN:
                self.sendCloseFrame(code=code, isReply=False)
            else:
                super().serverClose(code)

    class EndsAll(Server):  # type: ignore[misc]  # daphne has no types
        """Ends every application, also in the seconds after a handshake.

        The request that became a socket is listed for so long and has none: Daphne would stop
        there, and no socket would hear of the end.
        """

        def kill_all_applications(self) -> Any:
            """Cancel what runs; fires when all has ended."""
            for protocol, details in list(self.connections.items()):
                if "application_instance" not in details:
                    del self.connections[protocol]
            return super().kill_all_applications()

    async def leave() -> None:
        # A process that is gone before its clients have read good-bye cuts it off.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await emptied.wait()

    def begin_to_leave() -> Any:
        """Refuse new sockets; Daphne then ends those that are open, and each says good-bye."""
        LEAVING.set()
        if not connected:
            return None
        emptied.clear()
        return Deferred.fromFuture(asyncio.ensure_future(leave()))

    WebSocketFactory.protocol = SaysWhy
    CommandLineInterface.server_class = EndsAll
    reactor.addSystemEventTrigger("before", "shutdown", begin_to_leave)  # type: ignore[arg-type]


if "twisted.internet.reactor" in sys.modules:  # served by Daphne
    _wire_daphne()
    heartbeats.begin("web")
