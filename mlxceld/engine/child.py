"""The engine's process as the front holds it: its socket, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

import msgspec

from mlxceld.engine import messages as m

_AT_ONCE = 1 << 18
"""Bytes that are read at once."""

_PATIENCE = 2.0
"""Seconds in which an engine whose socket is closed ends by itself."""


class Wire(asyncio.BufferedProtocol):
    """The front's end of the socket: what comes in, as messages.

    It reads into one buffer of its own: a new one for every read, as streams have it,
    costs more than the messages in it.
    """

    def __init__(self) -> None:
        self.raves = False
        """Whether what comes can be understood no more."""
        self._buffer = bytearray(_AT_ONCE)
        self._unread = bytearray()
        """The beginning of a frame whose end has not come."""
        self._messages: list[m.Up] = []
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    async def receive(self) -> list[m.Up] | None:
        """The messages that are there, of one frame or more; waits for some.

        None when there will be no more. What came before the end, or before what is no
        message, counts.
        """
        while not self._messages:
            if self._ended or self.raves:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        found, self._messages = self._messages, []
        return found

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        read = memoryview(self._buffer)[:nbytes]
        if not self._unread:
            self._unread += read[self._take(read) :]
        else:
            self._unread += read
            with memoryview(self._unread) as unread:
                taken = self._take(unread)
            del self._unread[:taken]
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._wake()

    def _take(self, data: memoryview) -> int:
        """Take the messages of all whole frames; the bytes that those are."""
        start = 0
        try:
            while len(data) >= start + m.HEADER and not self.raves:
                body = start + m.HEADER
                end = body + m.length(data[start:body])
                if len(data) < end:
                    break
                self._messages += m.read_up(data[body:end])
                start = end
        except msgspec.DecodeError:
            self.raves = True
        return start

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Child:
    """One engine process and the socket to it. Made by `start`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.WriteTransport,
        wire: Wire,
    ) -> None:
        self._process = process
        self._transport = transport
        self._wire = wire
        self.fault = ""
        """What is wrong with an engine that did not end by itself."""

    @classmethod
    async def start(cls, command: Sequence[str]) -> Child:
        """Start `command` with its end of a socket. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # In a process group of its own: a terminal's Ctrl-C is for the front.
                process = await asyncio.create_subprocess_exec(
                    *command,
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        loop = asyncio.get_running_loop()
        return cls(process, *await loop.create_connection(Wire, sock=ours))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, messages: list[m.Down]) -> None:
        self._transport.write(m.frame(messages))

    async def receive(self) -> list[m.Up] | None:
        """As `Wire.receive`: None when the engine has gone or raves."""
        messages = await self._wire.receive()
        if self._wire.raves and messages is None:
            self.fault = "sent what is no message"
        return messages

    def hang_up(self) -> None:
        """Close the socket, which ends the engine. May be called twice."""
        self._transport.close()

    def kill(self, fault: str) -> None:
        """End an engine that would not end by itself."""
        self.fault = fault
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> int:
        """Hang up and make sure that it has ended; minus the signal that ended it."""
        self.hang_up()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # Also when the wait for an engine that has crashed is cancelled.
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        status = self._process.returncode
        assert status is not None
        return status
