"""The HTTP server around an application: uvicorn, as the daemon wants it.

A module of its own, because uvicorn takes a while to import and the engine is started
before that.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from mlxceld.api.http import MAX_HEADER
from mlxceld.service.connections import connections


class Server(uvicorn.Server):
    """uvicorn without signal handlers: it would drop the second of two signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
