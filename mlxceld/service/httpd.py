"""The HTTP server around an application: uvicorn, as the daemon wants it.

A module of its own, because uvicorn takes a while to import and the engine is started
before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from mlxceld.api.http import MAX_HEADER
from mlxceld.service.connections import Connection, connections
from mlxceld.service.doors import Door

_QUIET = 2.0
"""Seconds that connections get to close once no request runs any more."""


class Server(uvicorn.Server):
    """uvicorn without signal handlers: it would drop the second of two signals."""

    _made_room = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        for sock in sockets or ():
            if isinstance(sock, Door):
                sock.make_room = self._make_room
        await super().startup(sockets)

    def _make_room(self) -> None:
        """End the connection that has waited longest for its client to ask something.

        At most one in a turn of the event loop, which then sees that it has ended.
        """
        if self._made_room:
            return
        self._made_room = True
        asyncio.get_running_loop().call_soon(self._look_again)
        idle = [one for one in self._connections() if one.idle]
        left = [one for one in idle if not one.transport.is_closing()]
        if left:
            min(left, key=lambda one: one.idle_since).transport.abort()

    def _look_again(self) -> None:
        self._made_room = False

    async def end(self, serving: asyncio.Task[None]) -> None:
        """Stop serving, which is what `serving` does.

        Connections that are left then are cut: of clients that do not take the end of
        their answer, or do not send that of their request.
        """
        self.should_exit = True
        await asyncio.wait({serving}, timeout=_QUIET)
        for one in tuple(self._connections()):
            one.transport.abort()
        await asyncio.wait({serving}, timeout=_QUIET)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    def _connections(self) -> Iterator[Connection]:
        for one in self.server_state.connections:
            assert isinstance(one, Connection)
            yield one


def http_server(app: Any, timeout: float, tls: ssl.SSLContext | None) -> Server:
    """A server of `app` that ends connections which stall for `timeout` seconds."""
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="auto",
            ws="none",
            http=connections(timeout),
            h11_max_incomplete_event_size=MAX_HEADER,
            ssl_context_factory=None if tls is None else lambda *_: tls,
        )
    )
