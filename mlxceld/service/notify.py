"""What systemd wants to hear: the datagrams of sd_notify(3), written by hand.

Other managers set no `NOTIFY_SOCKET`, and then nothing is sent. A manager that does
not listen is no reason to stop serving: what cannot be delivered is dropped.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"


class Notifier:
    """Sends to the manager's socket; without one it keeps silent."""

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        """`address` is a path, or an abstract name after `@`."""
        self.watchdog = watchdog
        """Seconds between two signs of life at most; 0 where none are wanted."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address.startswith(("/", "@")):
            kind = socket.SOCK_DGRAM
            with contextlib.suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, kind)
                self._socket.setblocking(False)

    @property
    def heard(self) -> bool:
        """Whether there is anybody to tell."""
        return self._socket is not None

    def send(self, *lines: str) -> None:
        """Send assignments as one message. Never raises, never blocks."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)

    def close(self) -> None:
        """Send nothing any more. May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def from_environment(
    environ: MutableMapping[str, str], pid: int | None = None
) -> Notifier:
    """The notifier that the environment names.

    Takes the variables out, so that the engine and whatever it starts cannot speak for
    the daemon. A watchdog that is meant for another process is not ours.
    """
    pid = os.getpid() if pid is None else pid
    address = environ.pop("NOTIFY_SOCKET", "")
    wanted = environ.pop("WATCHDOG_USEC", "").strip()
    whose = environ.pop("WATCHDOG_PID", "").strip()
    seconds = 0.0
    if wanted.isascii() and wanted.isdigit() and whose in ("", str(pid)):
        seconds = int(wanted) / 1e6
    return Notifier(address, seconds)


def status(text: str) -> str:
    """The line that `systemctl status` shows; always one line."""
    return "STATUS=" + " ".join(text.split())


def extend(seconds: float) -> str:
    """Ask for more time to start or to stop, counted from now."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"


def reloading() -> tuple[str, str]:
    """A reload begins now, by the clock that systemd compares with its own."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    return "RELOADING=1", f"MONOTONIC_USEC={now}"
