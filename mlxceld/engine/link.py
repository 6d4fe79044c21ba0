"""The engine's end of the socket to the front."""

from __future__ import annotations

import os
import socket
import threading

from mlxceld.engine import messages as m


class Link:
    """Whole frames both ways; sending works from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def receive(self) -> list[m.Down] | None:
        """The messages of the next frame; None when the front has gone.

        Raises msgspec.DecodeError for what is no frame.
        """
        header = self._exactly(m.HEADER)
        if header is None:
            return None
        body = self._exactly(m.length(header))
        return None if body is None else m.read_down(body)

    def send(self, messages: list[m.Up]) -> None:
        """Send messages as one frame. Without a front there is nothing left to do."""
        with self._lock:
            try:
                self._sock.sendall(m.frame(messages))
            except OSError:
                os._exit(0)

    def _exactly(self, n: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < n:
            try:
                part = self._sock.recv(n - len(parts))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)
