"""One HTTP exchange over raw ASGI: read a JSON body, send a reply, notice a hang-up.

The routes are plain ASGI because a framework's response classes get in the way of
three things that matter here: a client that leaves must be noticed while its request
waits, a stream's status must wait for the first token, and clean-up must not depend
on an `await` inside a cancelled task.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from litestar.types import Receive, Scope, Send

from mlxceld.api.errors import ApiError, ClientGone, bad_field, invalid

MAX_BODY = 64 * 1024 * 1024
"""Bytes of the largest request body: far above any context, far below the memory."""

JSON_TYPE = "application/json; charset=utf-8"

Headers = Iterable[tuple[str, str]]


class Exchange:
    """A request and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]  # type: ignore[typeddict-item]
        self.path: str = scope["path"]
        self._query: bytes = scope.get("query_string", b"")
        self._receive = receive
        self._send = send
        self.started = False
        """Whether the status line is on its way, so that no other can follow."""
        self.streams = False
        """Whether the reply is a stream of events, which can end in an error event."""

    @property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self._query.decode("latin-1"), keep_blank_values=True))

    async def body(self) -> bytes:
        """The whole body. Raises ApiError when too large, ClientGone on a hang-up."""
        chunks: list[bytes] = []
        n = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")  # type: ignore[assignment]
            n += len(chunk)
            if n > MAX_BODY:
                raise ApiError(
                    413,
                    "invalid_request_error",
                    f"the request body is larger than {MAX_BODY} bytes",
                )
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def json_object(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ApiError 400 for anything else."""
        return parse_object(await self.body())

    async def gone(self) -> None:
        """Return when the client has closed the connection. The body must be read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (name.encode("latin-1"), value.encode("latin-1"))
                    for name, value in headers
                ],
            }
        )

    async def write(self, data: bytes, more: bool = True) -> None:
        await self._send(
            {"type": "http.response.body", "body": data, "more_body": more}
        )

    async def send_bytes(
        self, data: bytes, content_type: str, status: int = 200, headers: Headers = ()
    ) -> None:
        await self.start(
            status,
            [
                ("content-type", content_type),
                ("content-length", str(len(data))),
                *headers,
            ],
        )
        await self.write(data, more=False)

    async def send_json(
        self, payload: Any, status: int = 200, headers: Headers = ()
    ) -> None:
        """Numbers that JSON cannot write (a bias of -inf) become null."""
        data = msgspec.json.encode(payload)
        await self.send_bytes(data, JSON_TYPE, status, headers)

    async def send_error(self, error: ApiError) -> None:
        await self.send_json(error.body(), error.code, error.headers())


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ApiError 400 that names the field where it can."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise invalid("the request body is nested too deeply") from None
    except (ValueError, UnicodeError) as error:
        # msgspec.DecodeError is a ValueError; so is Python's limit on digits.
        raise _blame(body) or invalid(f"parse error: {error}") from None
    if not isinstance(value, dict):
        raise invalid("the request body must be a JSON object")
    return value


def _blame(body: bytes) -> ApiError | None:
    """Find the field behind a number that is none: NaN, Infinity, 1e999.

    Python's own reader takes them, so it can tell where they are. None when the
    mistake is another one.
    """
    try:
        value = json.loads(body, parse_int=float)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for name, item in value.items():
        if _holds_no_number(item):
            return bad_field(name, "Value must be a finite number")
    return None


def _holds_no_number(item: Any) -> bool:
    if isinstance(item, float):
        return not math.isfinite(item)
    if isinstance(item, list):
        return any(map(_holds_no_number, item))
    if isinstance(item, dict):
        return any(map(_holds_no_number, item.values()))
    return False
