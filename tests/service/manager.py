"""A service manager of tests: the socket that it gives, and what it hears there."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.service.running import PATIENCE


class FakeManager:
    """Listens at a notify socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)

    def close(self) -> None:
        self._socket.close()

    def hear(self, seconds: float = PATIENCE) -> dict[str, str] | None:
        """The assignments of the next message; None when none comes in time."""
        self._socket.settimeout(max(seconds, 1e-3))
        try:
            data = self._socket.recv(4096)
        except TimeoutError:
            return None
        return dict(line.split("=", 1) for line in data.decode().split("\n"))

    def until(self, name: str) -> list[dict[str, str]]:
        """The messages up to the first that assigns `name`; fails when none comes."""
        heard = []
        end = time.monotonic() + PATIENCE
        while (message := self.hear(end - time.monotonic())) is not None:
            heard.append(message)
            if name in message:
                return heard
        raise AssertionError(f"no {name} in {heard}")

    def skip(self) -> None:
        """Drop what was sent by now."""
        while self.hear(0) is not None:
            pass


@contextlib.contextmanager
def manager(folder: Path) -> Iterator[FakeManager]:
    """A manager whose socket is a file of the folder."""
    fake = FakeManager(str(folder / "notify"))
    try:
        yield fake
    finally:
        fake.close()
