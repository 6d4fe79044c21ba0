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


def event(payload: Any, name: str = "") -> bytes:
    """One event. JSON has no raw line breaks, so one `data:` line is enough."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(payload) + b"\n\n"


class EventStream:
    """The events of one reply. Status 200 goes out with the first event.

    Until then a failure can still be a real status. Afterwards it is one more event
    and the end, which is written where all failures are.
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
        await self.begin()
        await self._exchange.write(event(payload, name))

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
