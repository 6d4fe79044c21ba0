"""The engine's end of the socket to the front."""

from __future__ import annotations

import os
import socket
import threading

from mlxceld.engine import messages as m

MOST_UNSENT = 1024 * 1024
"""Bytes that wait for a front that does not read: ten thousand tokens and more, seconds
of a fast model. Whoever has more to say then waits for it, since a front that is slower
than the engine for good would fall ever further behind."""


class Link:
    """Whole frames both ways; sending works from any thread.

    The thread that owns MLX does not wait for a front that is busy: what the socket
    does not take at once is sent by a thread that lives as long as something is left.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._changed = threading.Condition()
        self._unsent = bytearray()
        self._sending = False
        """Whether the other thread is at it, so that all else has to queue up."""

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
        frame = m.frame(messages)
        with self._changed:
            if not self._sending:
                sent = self._at_once(frame)
                if sent == len(frame):
                    return
                frame = frame[sent:]
                self._sending = True
                # No daemon: a process that ends waits until its last words are out.
                threading.Thread(target=self._rest, name="sender").start()
            self._unsent += frame
            while len(self._unsent) > MOST_UNSENT:
                self._changed.wait()

    def _at_once(self, frame: bytes) -> int:
        """Bytes that the socket takes without waiting."""
        try:
            return self._sock.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            os._exit(0)

    def _rest(self) -> None:
        """Send what has piled up, and what comes meanwhile."""
        while True:
            with self._changed:
                part, self._unsent = self._unsent, bytearray()
                self._changed.notify_all()
                if not part:
                    self._sending = False
                    return
            try:
                self._sock.sendall(part)
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
