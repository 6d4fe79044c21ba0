"""The queue of requests: who comes next, found without looking at the others.

A step asks it three things: who may be seated, who has waited too long, and how many
there are. None of them costs more with ten thousand requests in it than with one, and
a request that is cancelled is found by its number.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from mlxceld.engine.slot import Request

_ANY = -1
"""The lane of those who take any slot."""


class Waiting:
    """Requests in order of arrival; whoever was put back comes before all others.

    Those who want a particular slot stand in a lane of their own, so that a busy slot
    is one lane left out, not a walk past everybody who waits for it. Places count
    across the lanes: the next one is the least of the heads.
    """

    def __init__(self) -> None:
        self._lanes: dict[int, OrderedDict[int, Request]] = {}
        """By slot; requests by place, the heads first."""
        self._places: dict[int, tuple[int, Request]] = {}
        """By number of the request."""
        self._unstarted: OrderedDict[int, Request] = OrderedDict()
        """By number of the request: the longest waiting first."""
        self._first = self._last = 0
        """The places at both ends; between them every place is used once."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Request]:
        """All of them in their order; this walks, and no step does it."""
        lanes = [lane.items() for lane in self._lanes.values()]
        for _, request in heapq.merge(*lanes, key=lambda item: item[0]):
            yield request

    def add(self, request: Request) -> None:
        """Take a request that has just arrived."""
        self._last += 1
        self._lane(request)[self._last] = request
        self._places[request.id] = self._last, request
        self._unstarted[request.id] = request

    def put_back(self, request: Request) -> None:
        """Take a request that had started, before all others."""
        self._first -= 1
        lane = self._lane(request)
        lane[self._first] = request
        lane.move_to_end(self._first, last=False)
        self._places[request.id] = self._first, request

    def first(self, idle: Iterable[int]) -> Request | None:
        """The first request that one of the slots `idle` may take."""
        heads = [
            next(iter(lane.items()))
            for lane in map(self._lanes.get, (_ANY, *idle))
            if lane
        ]
        return min(heads, key=lambda head: head[0])[1] if heads else None

    @property
    def longest(self) -> Request | None:
        """Who has waited longest of those who never started."""
        return next(iter(self._unstarted.values()), None)

    def take(self, request_id: int) -> Request | None:
        """Let a request go by its number; None when it does not wait."""
        found = self._places.pop(request_id, None)
        if found is None:
            return None
        place, request = found
        del self._lane(request)[place]
        self._unstarted.pop(request_id, None)
        return request

    def _lane(self, request: Request) -> OrderedDict[int, Request]:
        wanted = max(request.message.id_slot, _ANY)
        return self._lanes.setdefault(wanted, OrderedDict())
