"""One HTTP connection: what uvicorn's does, and an end for clients that stall.

A client that stops in the middle of a request, or does not take its answer, holds a
connection and what waits for it; neither may last for ever. And what is refused before
a route sees it (a header without an end, a request that is none) gets the error shape
of the API. Whoever is answered before all of a request was sent gets time to read it: a
connection that is closed while the client still sends is reset, and the reply is lost.

All connections share one thread, so none may have it for long: a body in chunks of one
byte each is a thousand times the work of a whole one, and is done in small parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlxceld.api.errors import head_too_large, invalid
from mlxceld.api.http import MAX_HEADER

_LINGER = 2.0
"""Seconds that a client which has its reply may be silent before it goes on sending."""

_LONGEST = 30.0
"""Seconds in which what such a client sends is read and dropped."""

_MOST_EVENTS = 100
"""Parts of requests that are taken from one connection before it is the others' turn.
A request has three, or one for each chunk."""


class _Transport:
    """A transport whose owner decides what closing it means."""

    def __init__(self, inner: Any, on_close: Callable[[], None]) -> None:
        self._inner = inner
        self._on_close = on_close
        self.parting = False
        """Whether nothing more is to be written, although the client still sends."""
        self.full = False
        """Whether more was read than has been looked at."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def resume_reading(self) -> None:
        if not self.full:
            self._inner.resume_reading()

    def close(self) -> None:
        self._on_close()

    def close_now(self) -> None:
        self._inner.close()

    def is_closing(self) -> bool:
        return self.parting or self._inner.is_closing()


class Connection(H11Protocol):
    """A connection of uvicorn. Subclasses say how long a client may stall."""

    patience: float = 0.0
    """Seconds; 0 is for ever."""

    idle_since: float = 0.0
    """A time of the loop's clock; means nothing while it is not idle."""

    _stalled: asyncio.TimerHandle | None = None
    _parts_by: float = 0.0
    """A time of the loop's clock; it counts once the connection is parting."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._next_part = self.conn.next_event
        self.conn.next_event = self._next_in_turn  # type: ignore[method-assign]
        self._turn = 0
        """Parts that were taken in this turn."""

    @property
    def idle(self) -> bool:
        """Whether nobody works for it: no request has come, or none since the last."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = _Transport(transport, self._close)
        super().connection_made(self._out)  # type: ignore[arg-type]
        self.idle_since = self.loop.time()
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._out.parting:
            self._linger()
            return
        self._turn = 0
        super().data_received(data)
        self._look()

    def _next_in_turn(self) -> Any:
        """What comes next of the requests, or that there is nothing more for now."""
        if self._turn < _MOST_EVENTS:
            self._turn += 1
            return self._next_part()
        if not self._out.full:
            self._out.full = True
            self._out.pause_reading()
            self.loop.call_soon(self._go_on)
        return h11.NEED_DATA

    def _go_on(self) -> None:
        """Another turn for what was read already."""
        self._out.full = False
        if self._out.is_closing():
            return
        self._turn = 0
        self.handle_events()
        if not (self._out.full or self.flow.read_paused):
            self._out.resume_reading()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._out.is_closing() and not self._out.parting:
            # The end of a reply: some of it was taken, the rest has time again.
            self._wait()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.idle_since = self.loop.time()
        # The next request may have come in part, and nothing of it comes any more.
        self._look()

    def _look(self) -> None:
        if not (self.flow.write_paused or self._out.is_closing()):
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
        held_up = self.flow.read_paused and not self.flow.write_paused
        if held_up and not self._out.is_closing():
            # It is us who do not read, while a model wakes up for instance.
            self._wait()
            return
        # What is in the buffers will not be taken: closing would wait for that.
        self.transport.abort()

    def _close(self) -> None:
        """End the connection, once a client that still sends had time to see why."""
        if self._out.is_closing() or self.conn.their_state is not h11.SEND_BODY:
            self._out.close_now()
            return
        self._part()

    def _part(self) -> None:
        """Write nothing more, and drop what comes for a while."""
        self._out.parting = True
        self._out.full = False
        self._parts_by = self.loop.time() + _LONGEST
        self._out.resume_reading()
        if self._out.can_write_eof():
            self._out.write_eof()
        self._linger()

    def _linger(self) -> None:
        self._expect_nothing()
        left = self._parts_by - self.loop.time()
        self._stalled = self.loop.call_later(min(_LINGER, left), self._leave)

    def _leave(self) -> None:
        self._out.close_now()
        # Closing waits for a reply that is not taken.
        self._wait()

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
        if self.cycle is not None and not self.cycle.response_complete:
            # Whoever works on the beginning of this request answers nobody.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._part()

    def _head_too_large(self) -> bool:
        return len(self.conn.trailing_data[0]) > MAX_HEADER


def connections(patience: float) -> type[Connection]:
    """The kind of connection whose clients may stall for `patience` seconds."""

    class Patient(Connection):
        pass

    Patient.patience = patience
    return Patient
