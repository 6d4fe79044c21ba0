"""The engine's process as the front holds it: its socket, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

import msgspec

from mlxceld.engine import messages as m

_PATIENCE = 2.0
"""Seconds in which an engine whose socket is closed ends by itself."""


class Child:
    """One engine process and the socket to it. Made by `start`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
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
        return cls(process, *await asyncio.open_connection(sock=ours))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, messages: list[m.Down]) -> None:
        self._writer.write(m.frame(messages))

    async def receive(self) -> list[m.Up] | None:
        """The messages of the next frame; None when the engine has gone or raves."""
        try:
            header = await self._reader.readexactly(m.HEADER)
            length = m.length(header)
            return m.read_up(await self._reader.readexactly(length))
        except msgspec.DecodeError:
            self.fault = "sent what is no message"
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        return None

    def hang_up(self) -> None:
        """Close the socket, which ends the engine. May be called twice."""
        self._writer.close()

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
