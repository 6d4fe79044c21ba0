"""What those who watch the server share: one producer, and what it alone remembers.

However many watch, what they see is made once, at most four times a second, and only
while somebody does. A watcher that takes its updates slowly misses some; nothing piles
up for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxceld.flips import Announcement

INTERVAL = 0.25
"""Seconds between two updates, at least."""

QUIET = 1.0
"""Seconds after which an update comes although nothing has changed: a sign of life."""

_ERRORS = 8


@dataclass(frozen=True, slots=True)
class Trouble:
    """A request that failed: names and numbers of ours, no word that a client wrote."""

    at: float
    """Unix time."""
    route: str
    status: int
    kind: str
    """The type of the error that was sent."""


class Watching:
    """One for the life of the daemon; a reload keeps it."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self.draining = False
        self.flips: tuple[Announcement, ...] = ()
        """Defaults that will change what this configuration gets."""
        self.troubles: deque[Trouble] = deque(maxlen=_ERRORS)
        self.watchers = 0
        self.made = 0
        """Updates that were sent out, over all of the time."""
        self._interval = interval
        self._make: Callable[[], bytes | None] = lambda: None
        self._frame = b""
        self._fresh = asyncio.Event()
        self._over = False
        self._task: asyncio.Task[None] | None = None

    def trouble(self, route: str, status: int, kind: str) -> None:
        """Remember a request that failed."""
        self.troubles.append(Trouble(time.time(), route, status, kind))

    async def follow(
        self, make: Callable[[], bytes | None]
    ) -> AsyncGenerator[bytes, None]:
        """The updates from now on, each with its time in milliseconds before it.

        `make` gives the JSON of the present, or None when there is no more to see;
        that of the last one who came is used for all.
        """
        self._make = make
        self.watchers += 1
        if self._task is None:
            self._over = False
            self._frame = b""
            self._task = asyncio.create_task(self._produce(), name="monitor")
        try:
            seen = b""
            while not self._over:
                fresh = self._fresh
                if self._frame is not seen:
                    seen = self._frame
                    yield seen
                    continue
                await fresh.wait()
        finally:
            self.watchers -= 1
            if not self.watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _produce(self) -> None:
        try:
            last, sent = b"", 0.0
            while (present := self._make()) is not None:
                now = time.monotonic()
                if present != last or now - sent >= QUIET:
                    last, sent = present, now
                    self._send(b'{"ms":%d,"now":%b}' % (now * 1e3, present))
                await asyncio.sleep(self._interval)
        finally:
            # One that was ended because nobody watched says nothing to those who came.
            if self._task is asyncio.current_task():
                self._over = True
                self._fresh.set()

    def _send(self, frame: bytes) -> None:
        self._frame = frame
        self.made += 1
        fresh, self._fresh = self._fresh, asyncio.Event()
        fresh.set()
