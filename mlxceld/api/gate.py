"""What every request passes before a route: CORS, API keys, readiness, the log.

A request that names a foreign host goes no further. Then in llama-server's order:
preflights are answered and need no key; a wrong key is 401 on every path, known or
not; while the model loads, and once the daemon is told to stop, the rest is 503.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import cast

import structlog
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from mlxceld import logs
from mlxceld.api import monitor
from mlxceld.api import record as records
from mlxceld.api.auth import PUBLIC
from mlxceld.api.errors import (
    ApiError,
    draining,
    forbidden,
    head_too_large,
    unauthorized,
)
from mlxceld.api.http import MAX_HEADER, Exchange
from mlxceld.api.live import Live, Rules

WATCHED = frozenset({"/metrics", "/props", "/slots"})
"""What is answered to the end: those who watch a server want to see it drain."""

log = logs.get("mlxceld.api")


class Gate:
    """The outermost ASGI app. `prefix` is the API prefix, empty or like `/llm`."""

    def __init__(self, app: ASGIApp, live: Live, prefix: str) -> None:
        self._app = app
        self._watched = WATCHED | {prefix + path for path in WATCHED}
        public = PUBLIC | monitor.PUBLIC
        self._public = public | {prefix + path for path in public} | {prefix or "/"}
        pages = set(monitor.ROUTES) - {"/"}
        self._monitor = pages | {prefix + path for path in pages}
        self._roots = {"/", prefix or "/"}
        self._drain_ends: float | None = None
        self.live = live
        self.inside = 0
        """Requests that were let through and are not over, their answers included."""

    def drain(self, seconds: float) -> None:
        """Take no more requests; those inside go on for so many seconds.

        Only the first call counts.
        """
        if self._drain_ends is None:
            self._drain_ends = time.monotonic() + seconds
            self.live.state.watching.draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        scope = cast("HTTPScope", scope)
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        rules = self.live.rules
        extra = rules.cors.headers(None if origin is None else origin.decode("latin-1"))
        record = records.begin(scope, scope["headers"])
        extra = [*extra, (records.HEADER, record.id)]
        status = records.GONE

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in extra]
                # As llama-server spells them: some clients look names up as written.
                message["headers"] = [
                    (name.title(), value)
                    for name, value in (*message["headers"], *added)
                ]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=record.id):
            try:
                await self._pass(rules, scope, receive, send_on)
            finally:
                # Status is asked for every few seconds, by machines.
                asked = scope["method"] != "POST" and (status < 400 or status == 503)
                if not asked:
                    rules.state.metrics.count(status)
                if record.error and record.route and scope["method"] == "POST":
                    rules.state.watching.trouble(record.route, status, record.error)
                (log.debug if asked else log.info)(
                    logs.Event.REQUEST,
                    request_id=record.id,
                    method=scope["method"],
                    route=record.route or records.printable(scope["path"]),
                    **record.fields(status),
                )

    async def _pass(
        self, rules: Rules, scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        exchange = Exchange(scope, receive, send)
        headers = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER:
            await exchange.send_error(head_too_large(MAX_HEADER))
            return
        if not rules.hosts.admits(headers, file=_through_file(scope)):
            await exchange.send_error(forbidden(_FOREIGN_HOST))
            return
        if exchange.method == "OPTIONS":
            await exchange.send_bytes(b"", "text/html", headers=_PREFLIGHT)
            return
        path = exchange.path.rstrip("/") or "/"
        if path not in self._public and not rules.keys.admits(scope["headers"]):
            await exchange.send_error(unauthorized())
            return
        if self._watches(rules, path, headers):
            # Neither a model that loads nor one that is drained is in its way, and it
            # is no request that a drain would wait for.
            await self._app(_as_get(scope), receive, send)
            return
        if self._drain_ends is not None and path not in self._watched:
            await exchange.send_error(self._closing(self._drain_ends))
            return
        if not rules.state.serving:
            await exchange.send_error(rules.state.not_ready())
            return
        self.inside += 1
        try:
            await self._app(_as_get(scope), receive, send)
        finally:
            self.inside -= 1

    def _watches(
        self, rules: Rules, path: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> bool:
        """Whether this is for the monitor page."""
        if not rules.state.settings.server.ui:
            return False
        page = path in self._roots and monitor.wants_page(headers)
        return page or path in self._monitor

    def _closing(self, ends: float) -> ApiError:
        left = math.ceil(ends - time.monotonic())
        return draining(retry_after=max(1, left))


def _as_get(scope: HTTPScope) -> HTTPScope:
    """HEAD is GET whose body the server leaves out; routes need not know."""
    if scope["method"] != "HEAD":
        return scope
    return cast("HTTPScope", {**scope, "method": "GET"})


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
