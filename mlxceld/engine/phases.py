"""How long each phase of a load took, from what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from mlxceld import BEGAN
from mlxceld.engine.messages import Loading

NAMES = {
    "reading the model": "reading",
    "loading weights": "weights",
    "measuring the caches": "measuring",
    "probing the model": "probing",
    "allocating the pool": "allocating",
    "warming up": "warming",
    "reading the vocabulary": "vocabulary",
}
"""Phases by what is told when they begin; the first one, `imports`, is told by nobody.
`vocabulary` is what is left of that work when all else is done."""


class Phases:
    """Passes on what is told, and keeps the time of each phase."""

    def __init__(
        self,
        tell: Callable[[Loading], None],
        clock: Callable[[], float] = time.monotonic,
        began: float = BEGAN,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._since = began
        self._phase = "imports"
        self._seconds: dict[str, float] = {}

    def __call__(self, loading: Loading) -> None:
        doing = loading.doing
        phase = "fetching" if doing.startswith("fetching ") else NAMES.get(doing)
        # What is no phase, such as advice, belongs to the one that runs.
        if phase and phase != self._phase:
            self._turn(phase)
        self._tell(loading)

    def end(self) -> dict[str, float]:
        """Seconds by phase, in order; those of the last one end now."""
        self._turn("")
        return self._seconds

    def _turn(self, phase: str) -> None:
        now = self._clock()
        took = self._seconds.get(self._phase, 0.0) + now - self._since
        self._seconds[self._phase] = round(took, 6)
        self._phase, self._since = phase, now
