"""One HTTP exchange over raw ASGI: read a JSON body, send a reply, notice a hang-up.

The routes are plain ASGI because a framework's response classes get in the way of
three things that matter here: a client that leaves must be noticed while its request
waits, a stream's status must wait for the first token, and clean-up must not depend
on an `await` inside a cancelled task.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar.types import Receive, Scope, Send

from mlxceld.api import record
from mlxceld.api.errors import ApiError, ClientGone, bad_field, invalid, unavailable

MAX_BODY = 64 * 1024 * 1024
"""Bytes of the largest request body: far above any context, far below the memory."""

MAX_HEADER = 64 * 1024
"""Bytes of the largest head of a request: its first line and its headers."""

MAX_DEPTH = 200
"""Arrays and objects within each other: more than any schema or message needs, few
enough for everything that walks through them."""

LARGE_BODY = 256 * 1024
"""Bytes; to read a larger body and what is in it can take seconds."""

MOST_BODIES = 512 * 1024 * 1024
"""Bytes of bodies that are held for all requests together. What is made of them takes
about as much again, twice; large ones that come then have to wait outside."""

JSON_TYPE = "application/json; charset=utf-8"

Read = TypeVar("Read")

Headers = Iterable[tuple[str, str]]


class Exchange:
    """A request and the way to answer it."""

    bodies = 0
    """Bytes of all requests that are being worked on."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, max_body: int = MAX_BODY
    ) -> None:
        self.method: str = scope["method"]  # type: ignore[typeddict-item]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        """As it was asked for: the framework takes the last slash off the other."""
        self.record = record.of(scope)  # type: ignore[arg-type]
        self._query: bytes = scope.get("query_string", b"")
        self._max_body = max_body
        self._holds = 0
        """Bytes of the body that have come."""
        self.headers = scope["headers"]
        """Pairs of bytes, names in lower case."""
        self._receive = receive
        self._send = send
        self.started = False
        """Whether the status line is on its way, so that no other can follow."""
        self.streams = False
        """Whether the reply is a stream of events, which can end in an error event."""
        self.error_event: Callable[[ApiError], bytes] = _error_event
        """How that event is written; dialects differ."""
        self.held = 0
        """Bytes of the body that wait for the next write."""
        self._parts: list[bytes] = []

    @property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self._query.decode("latin-1"), keep_blank_values=True))

    async def body(self) -> bytes:
        """The whole body. Raises ApiError when too large, ClientGone on a hang-up.

        It counts as held until `release`.
        """
        chunks: list[bytes] = []
        length = dict(self.headers).get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._max_body:
            raise self._too_large()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")  # type: ignore[assignment]
            self._holds += len(chunk)
            Exchange.bodies += len(chunk)
            if self._holds > self._max_body:
                raise self._too_large()
            # Two that are as large as they may be always have room.
            most = max(MOST_BODIES, 2 * self._max_body)
            if self._holds > LARGE_BODY and Exchange.bodies > most:
                raise unavailable("too many large requests at once", retry_after=1)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def release(self) -> None:
        """The request is over, and its body needed no more. May be called twice."""
        Exchange.bodies -= self._holds
        self._holds = 0

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            "invalid_request_error",
            f"the request body is larger than {self._max_body} bytes",
        )

    async def json_object(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ApiError 400 for anything else."""
        return parse_object(await self.body())

    async def json(self) -> Any:
        """The body as JSON of any kind. Raises ApiError 400 when it is none."""
        return parse(await self.body())

    async def digest(self, work: Callable[[bytes], Read]) -> Read:
        """What `work` makes of the body, done beside the event loop for a large one.

        Everybody's streams run on that loop. Raises what `body` and `work` raise.
        """
        data = await self.body()
        if len(data) > LARGE_BODY:
            return await asyncio.to_thread(work, data)
        return work(data)

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

    def hold(self, data: bytes) -> None:
        """Put a part of the body before whatever is written next.

        Every write is a call of the system and a packet, which cost more than what is
        in them.
        """
        self._parts.append(data)
        self.held += len(data)

    async def flush(self) -> None:
        """Write what is held, if anything is."""
        if self.held:
            await self.write(b"")

    async def write(self, data: bytes, more: bool = True) -> None:
        if self.held:
            data = b"".join((*self._parts, data))
            self._parts.clear()
            self.held = 0
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
        self.record.error = error.kind
        await self.send_json(error.body(), error.code, error.headers())


_DEEP = f"the request body is nested too deeply, more than {MAX_DEPTH} levels"


def _error_event(error: ApiError) -> bytes:
    return b"data: " + msgspec.json.encode(error.body()) + b"\n\n"


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ApiError 400 that names the field where it can."""
    value = parse(body)
    if not isinstance(value, dict):
        raise invalid("the request body must be a JSON object")
    return value


def parse(body: bytes) -> Any:
    """Any JSON. Raises ApiError 400."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise invalid(_DEEP) from None
    except (ValueError, UnicodeError) as error:
        # msgspec.DecodeError is a ValueError; so is Python's limit on digits.
        raise _blame(body) or invalid(f"parse error: {error}") from None
    if _too_deep(body, value):
        raise invalid(_DEEP)
    return value


def _too_deep(body: bytes, value: Any) -> bool:
    # Most bodies have too few brackets to be deep, which is quick to tell.
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return False
    return True


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
