"""One HTTP connection: what uvicorn's does, and an end for clients that stall.

A client that stops in the middle of a request, or does not take its answer, holds a
connection and what waits for it; neither may last for ever. And what is refused before
a route sees it (a header without an end, a request that is none) gets the error shape
of the API, and time to read it: a connection that is closed while the client still
sends is reset, and the reply is lost.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlxceld.api.errors import head_too_large, invalid
from mlxceld.api.http import MAX_HEADER

_LINGER = 2.0
"""Seconds in which what a refused client still sends is read and dropped."""


class Connection(H11Protocol):
    """A connection of uvicorn. Subclasses say how long a client may stall."""

    patience: float = 0.0
    """Seconds; 0 is for ever."""

    _stalled: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not self.flow.write_paused:
            self._expect_more()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._expect_more()

    def _expect_more(self) -> None:
        """Wait for the rest of a request; between requests uvicorn does it."""
        self._expect_nothing()
        reading = self.conn.their_state is h11.SEND_BODY
        first_head = self.conn.their_state is h11.IDLE and self.cycle is None
        head = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if reading or first_head or head:
            self._wait()

    def _wait(self) -> None:
        self._expect_nothing()
        if self.patience > 0:
            self._stalled = self.loop.call_later(self.patience, self._give_up)

    def _expect_nothing(self) -> None:
        timer, self._stalled = self._stalled, None
        if timer is not None:
            timer.cancel()

    def _give_up(self) -> None:
        # What is in the buffers will not be taken: closing would wait for that.
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request (uvicorn's name for the place where it does)."""
        error = invalid(msg)
        if self.conn.their_state is h11.ERROR and self._head_too_large():
            error = head_too_large(MAX_HEADER)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # A reply is on its way already: there is no place for another.
            self.transport.abort()
            return
        body = msgspec.json.encode(error.body())
        reason = HTTPStatus(error.code).phrase.encode()
        headers = [
            (b"content-type", b"application/json; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        reply: list[Any] = [
            h11.Response(status_code=error.code, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        for event in reply:
            self.transport.write(self.conn.send(event) or b"")
        self._refused = True
        self._expect_nothing()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stalled = self.loop.call_later(_LINGER, self.transport.close)

    def _head_too_large(self) -> bool:
        return len(self.conn.trailing_data[0]) > MAX_HEADER


def connections(patience: float) -> type[Connection]:
    """The kind of connection whose clients may stall for `patience` seconds."""

    class Patient(Connection):
        pass

    Patient.patience = patience
    return Patient
