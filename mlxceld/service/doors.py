"""Listening sockets that leave file descriptors for the daemon itself.

Every connection takes one, and nobody has to say anything to hold it. With none left
the engine cannot be started again, a reload cannot read its files, and the event loop
writes a traceback for each attempt to accept. So the last ones are kept: connections
beyond them are closed at once, and so is one that waits for a request of its client.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from mlxceld import logs
from mlxceld.logs import Event

RESERVE = 32
"""Descriptors that are not for connections: more than it takes to start an engine while
files are read; a quarter of them all where that is less."""

WIDEST = 65536
"""Descriptors that are enough for everybody; no more are asked for."""

_OFTEN = 60.0
"""Seconds between two lines in the log about connections that were refused."""

_NONE_LEFT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = logs.get("mlxceld.service")


def widen() -> None:
    """Raise the limit of open files as far as this process may, within reason.

    Systems start programs with 256 or 1024; the rest is there to be asked for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS has a limit of its own that it does not tell.
    for wanted in (WIDEST, 10240):
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def room() -> int:
    """The number of the first descriptor that is not for a connection."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = WIDEST
    return int(soft) - min(RESERVE, int(soft) // 4)


class Door(socket.socket):
    """A listening socket. Descriptors are numbered from below: a high one means that
    there are few left."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.most = room()
        self.make_room: Callable[[], None] = lambda: None
        """Asked to end a connection that nobody needs now."""
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._told = -_OFTEN

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that there is room for.

        Raises BlockingIOError when there is none, as a plain socket does.
        """
        while True:
            try:
                sock, address = super().accept()
            except OSError as error:
                if error.errno not in _NONE_LEFT:
                    raise
                self._drop(error)
                continue
            if sock.fileno() < self.most:
                return sock, address
            sock.close()
            self._refused()

    def _drop(self, error: OSError) -> None:
        """End the next connection, though there is no descriptor left to take it.

        It would be there again at once, for ever. Raises the error where it cannot be
        done: the event loop looks again a second later.
        """
        if self._spare < 0:
            self._keep_spare()
        if self._spare < 0:
            raise error
        os.close(self._spare)
        self._spare = -1
        try:
            super().accept()[0].close()
        except BlockingIOError:
            raise
        except OSError:
            raise error from None
        finally:
            self._keep_spare()
        self._refused()

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _refused(self) -> None:
        if self._spare < 0:
            self._keep_spare()
        self.make_room()
        now = time.monotonic()
        if now - self._told < _OFTEN:
            return
        self._told = now
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        _log.warning(
            Event.FULL,
            message=f"connections are refused: nearly all of the {soft} files that "
            "this process may have open are in use",
        )

    def close(self) -> None:
        """Stop listening. May be called twice."""
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)
        super().close()
