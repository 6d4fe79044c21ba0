"""What every request passes before a route: CORS, API keys, readiness, the log.

A request that names a foreign host goes no further. Then in llama-server's order:
preflights are answered and need no key; a wrong key is 401 on every path, known or
not; while the model loads everything else is 503.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast
from urllib.parse import urlsplit

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from mlxceld import logs
from mlxceld.api.auth import PUBLIC, Keys
from mlxceld.api.errors import forbidden, head_too_large, unauthorized
from mlxceld.api.http import MAX_HEADER, Exchange
from mlxceld.api.state import State
from mlxceld.hosts import HostCheck

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

log = logs.get("mlxceld.api")


class Cors:
    """Which web pages may read the answers; `origins` as in `--cors-origins`."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = tuple(origins)

    def headers(self, origin: str | None) -> list[tuple[str, str]]:
        """Headers for a request from `origin` (None when it says none).

        `*` echoes the origin, `localhost` echoes local ones, one literal is always
        sent as it is, of several the one that matches.
        """
        allowed = self._allowed(origin)
        if allowed is None:
            return [("vary", "Origin")] if self._varies else []
        headers = [("access-control-allow-origin", allowed)]
        return [*headers, ("vary", "Origin")] if self._varies else headers

    @property
    def _varies(self) -> bool:
        only = self._origins[0] if len(self._origins) == 1 else None
        return bool(self._origins) and (only is None or only in ("*", "localhost"))

    def _allowed(self, origin: str | None) -> str | None:
        if not self._varies:
            return self._origins[0] if self._origins else None
        if origin is None:
            return None
        if "*" in self._origins or origin in self._origins:
            return origin
        return origin if "localhost" in self._origins and _is_local(origin) else None


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOCAL
    except ValueError:
        return False


class Gate:
    """The outermost ASGI app. `prefix` is the API prefix, empty or like `/llm`."""

    def __init__(self, app: ASGIApp, state: State, keys: Keys, prefix: str) -> None:
        self._app = app
        self._state = state
        self._keys = keys
        self._public = PUBLIC | {prefix + path for path in PUBLIC} | {prefix or "/"}
        self._hosts = HostCheck(state.settings.server, keyed=bool(keys))
        self._cors = Cors(state.settings.server.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        scope = cast("HTTPScope", scope)
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        extra = self._cors.headers(None if origin is None else origin.decode("latin-1"))
        began = time.monotonic()
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in extra]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        try:
            await self._pass(scope, receive, send_on)
        finally:
            log.debug(
                logs.Event.REQUEST,
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round((time.monotonic() - began) * 1e3),
            )

    async def _pass(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        headers = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER:
            await exchange.send_error(head_too_large(MAX_HEADER))
            return
        if not self._hosts.admits(headers, file=_through_file(scope)):
            await exchange.send_error(forbidden(_FOREIGN_HOST))
            return
        if exchange.method == "OPTIONS":
            await exchange.send_bytes(b"", "text/html", headers=_PREFLIGHT)
            return
        path = exchange.path.rstrip("/") or "/"
        if path not in self._public and not self._keys.admits(scope["headers"]):
            await exchange.send_error(unauthorized())
            return
        if not self._state.serving:
            await exchange.send_error(self._state.not_ready())
            return
        if exchange.method == "HEAD":
            # The server leaves the body out; routes need not know.
            scope = cast("HTTPScope", {**scope, "method": "GET"})
        await self._app(scope, receive, send)


def _through_file(scope: HTTPScope) -> bool:
    """Whether the connection came through a UNIX socket, which has no port."""
    server = scope["server"]
    return server is None or server[1] is None


_FOREIGN_HOST = (
    "the Host header names a host that is not this machine: "
    "list it in server.allowed_hosts, or set an API key"
)

# As llama-server does, and never beside a literal `*`, which browsers refuse. It gives
# pages nothing: a key travels in a header that a page has to know, not in a cookie.
_PREFLIGHT = [
    ("access-control-allow-credentials", "true"),
    ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
    ("access-control-allow-headers", "*"),
]
