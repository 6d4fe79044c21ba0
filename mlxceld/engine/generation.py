"""One request as the front sees it while the engine works on it, and its failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from mlxceld.engine import messages as m

Event = m.Started | m.Progress | m.Delta | m.Done | m.Failed


class Unavailable(Exception):
    """The engine cannot take a request now; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineError(Exception):
    """The engine refused a question about text; carries the error body's fields."""

    def __init__(self, failed: m.Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Generation:
    """One running request; `cancel` when nobody listens.

    Iterate over its events, or `listen`: then there is no task that has to wake up for
    each of them.
    """

    def __init__(self, forget: Callable[[int], None], request_id: int) -> None:
        """`forget` takes the id of a request that nobody listens to."""
        self.id = request_id
        self._forget = forget
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False
        self._hear: Callable[[Event], None] = self._events.put_nowait

    def listen(self, hear: Callable[[Event], None]) -> None:
        """Have `hear` called with every event, those included that have come."""
        self._hear = hear
        while not self._events.empty():
            hear(self._events.get_nowait())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        while not self._ended:
            event = await self._events.get()
            self._ended = isinstance(event, m.Done | m.Failed)
            yield event

    def put(self, event: Event) -> None:
        """Hand over an event (for the client)."""
        self._hear(event)

    def cancel(self) -> None:
        """Stop the engine's work for this request. Synchronous; may be called twice."""
        self._forget(self.id)
