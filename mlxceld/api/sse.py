"""Server-sent events: frames, and a stream that begins only when there is something.

Events are written as llama-server does: one `data:` line of JSON and an empty line;
keep-alives are comments.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mlxceld.api.http import Exchange

DONE = b"data: [DONE]\n\n"
"""The end of an OpenAI stream; the native streams end without it."""

PING = b":\n\n"


MOST_HELD = 64 * 1024
"""Bytes of events that are written together; more are not held back."""

HOLE = "\0"
"""Stands in a `Mould` for a text that is not known yet."""

_encode = msgspec.json.Encoder().encode
_HOLE = _encode(HOLE)


def event(payload: Any, name: str = "") -> bytes:
    """One event. JSON has no raw line breaks, so one `data:` line is enough."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + _encode(payload) + b"\n\n"


class Mould:
    """Events that are the same but for one text, or a text and a number behind it.

    Nearly all events of a stream are such: what they have in common is encoded once.
    """

    def __init__(self, payload: Any, name: str = "") -> None:
        """`payload` has `HOLE` in place of the text, and of the number."""
        self._before, self._between, *after = event(payload, name).split(_HOLE)
        self._after = after[0] if after else b""

    def filled(self, text: str) -> bytes:
        """The event with this text."""
        return self._before + _encode(text) + self._between

    def numbered(self, text: str, number: int) -> bytes:
        """The event with this text and this number."""
        between = self._between + b"%d" % number
        return self._before + _encode(text) + between + self._after


class EventStream:
    """The events of one reply. Status 200 goes out with the first event.

    Until then a failure can still be a real status. Afterwards it is one more event
    and the end, which is written where all failures are. Events that come together are
    written together, when `flush` says that there are no more of them.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def begin(self) -> None:
        if not self._exchange.started:
            self._exchange.streams = True
            await self._exchange.start(
                200,
                [
                    ("content-type", "text/event-stream"),
                    ("cache-control", "no-cache"),
                    ("x-accel-buffering", "no"),
                ],
            )

    async def send(self, payload: Any, name: str = "") -> None:
        await self.put(event(payload, name))

    async def put(self, data: bytes) -> None:
        """Send an event that is encoded already."""
        exchange = self._exchange
        if not exchange.started:
            await self.begin()
        exchange.hold(data)
        if exchange.held > MOST_HELD:
            await exchange.flush()

    async def flush(self) -> None:
        """Write the events that are held back."""
        await self._exchange.flush()

    async def ping(self) -> None:
        """Keep the connection alive; begins the stream if need be.

        A proxy gives up on a long prompt otherwise. A failure after that can only be
        an event.
        """
        await self.begin()
        await self._exchange.write(PING)

    async def end(self, last: bytes = b"") -> None:
        await self.begin()
        await self._exchange.write(last, more=False)
