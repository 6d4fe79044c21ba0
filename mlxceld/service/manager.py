"""Tells the service manager how the daemon is, from what the engine shows of itself.

The watchdog is fed by the engine's heartbeat, which comes from the thread that owns
MLX: a front that still answers while its engine hangs is as dead as one that does not,
and the manager has to see that. Time is asked for while the engine shows that it still
loads, and no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mlxceld.engine.client import EngineClient
from mlxceld.plan import size
from mlxceld.service import notify
from mlxceld.service.notify import Notifier

_MORE = 60.0
"""Seconds that are asked for at a time while the model loads."""

_SILENCE = 900.0
"""Seconds in which an engine that loads must say what it does: a download is long."""

_LOOK = 1.0
"""Seconds between two looks at the engine, less where the watchdog wants it."""


class Manager:
    """What the daemon tells its manager; `run` keeps it informed."""

    def __init__(
        self,
        notifier: Notifier,
        client: EngineClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notifier = notifier
        self._client = client
        self._clock = clock
        self._told = ""
        self._beats = -1
        self._doing: object = None
        self._since = clock()
        self._ask_again = self._since
        self._note = ""
        self._ready = False
        self._stopping = False

    @property
    def tick(self) -> float:
        """Seconds between two looks."""
        wanted = self._notifier.watchdog / 4
        return min(_LOOK, wanted) if wanted else _LOOK

    async def run(self) -> None:
        """Look and tell until cancelled; returns at once where nobody listens."""
        while self._notifier.heard:
            self.look()
            await asyncio.sleep(self.tick)

    def serves(self) -> None:
        """The model is loaded and all addresses are served."""
        self._ready = True
        self._say(notify.READY)

    def reload_begins(self) -> None:
        """Only a daemon that serves reloads, in the manager's eyes."""
        if self._ready and not self._stopping:
            self._notifier.send(*notify.reloading())

    def reload_ends(self, note: str) -> None:
        """`note` says at the end of the status line what was wrong, if anything."""
        self._note = note
        if self._ready and not self._stopping:
            self._say(notify.READY)

    def stops(self, seconds: float) -> None:
        """The daemon drains, and will have ended in so many seconds."""
        if not self._stopping:
            self._stopping = True
            self._say(notify.STOPPING, notify.extend(seconds))

    def _say(self, *lines: str) -> None:
        self._told = self._status()
        self._notifier.send(*lines, notify.status(self._told))

    def _status(self) -> str:
        line = status_line(self._client, stopping=self._stopping)
        return f"{line}; {self._note}" if self._note else line

    def look(self) -> None:
        """Tell what has changed since the last look."""
        lines = []
        alive = self._alive()
        if self._ready and self._notifier.watchdog and alive:
            lines.append(notify.ALIVE)
        loads = not self._ready and not self._stopping and alive
        if loads and self._clock() >= self._ask_again:
            lines.append(notify.extend(_MORE))
            self._ask_again = self._clock() + _MORE / 6
        line = self._status()
        if line != self._told:
            lines.append(notify.status(line))
            self._told = line
        if lines:
            self._notifier.send(*lines)

    def _alive(self) -> bool:
        """Whether the engine gave a sign of life since the last look.

        One that sleeps has none to give. One that loads shows it by what it says.
        """
        client = self._client
        if client.state == "ready":
            before, self._beats = self._beats, client.beats
            return self._beats != before
        if client.state in ("loading", "waking"):
            doing = (client.loading, client.restarts, client.state)
            if doing != self._doing:
                self._doing, self._since = doing, self._clock()
            return self._clock() - self._since < _SILENCE
        return client.state == "sleeping" or self._stopping


def status_line(client: EngineClient, *, stopping: bool = False) -> str:
    """One line for people: what the daemon does now."""
    return _stopping(client) if stopping else _state(client)


def _stopping(client: EngineClient) -> str:
    left = client.running
    return f"stopping, {_requests(left)} left" if left else "stopping"


def _state(client: EngineClient) -> str:
    if client.state in ("loading", "waking"):
        loading = client.loading
        if loading is None:
            return "starting the engine"
        if not loading.total:
            return loading.doing
        return f"{loading.doing}, {size(loading.done)} of {size(loading.total)}"
    if client.state == "sleeping":
        return "asleep until the next request"
    if client.state != "ready" or client.ready is None:
        return "no engine"
    plan, snapshot = client.ready.plan, client.snapshot
    slots = f"{plan.slots} slot{'s' if plan.slots > 1 else ''}"
    line = f"{slots} of {plan.slot_ctx} tokens"
    if plan.shared:
        line += f" sharing {plan.pool}"
    if snapshot is None:
        return line
    busy = sum(slot.processing for slot in snapshot.slots)
    line += f", {busy} running"
    return f"{line}, {snapshot.waiting} waiting" if snapshot.waiting else line


def _requests(n: int) -> str:
    return f"{n} request{'s' if n > 1 else ''}"
