"""How long a start takes, by phase, from the beginning of the process to READY.

The phases follow each other and their sum is the whole: what the engine does while the
front still imports is counted once, as the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from mlxceld import BEGAN, logs
from mlxceld.logs import Event

_log = logs.get("mlxceld.service")

TOTAL = "total"


class Stopwatch:
    """Times the first start and those after a crash or a sleep."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, began: float = BEGAN
    ) -> None:
        self._clock = clock
        self._began = began
        self._engine = began
        self._ready = began
        self._first = True

    def engine_starts(self) -> None:
        """The engine's process is started now, or as soon as a pause is over."""
        self._engine = self._clock()
        if not self._first:
            self._began = self._engine

    def engine_ready(self) -> None:
        """The engine has said that the model is loaded."""
        self._ready = self._clock()

    def ends(self, engine: Mapping[str, float]) -> dict[str, float]:
        """Seconds by phase, in order, now that the daemon serves.

        `engine` are those that the engine counted. `front` is all before its process
        is started (nothing for a later start), `engine` what its process takes beyond
        those, `serving` what is left to do when it is ready; `total` is all of it.
        """
        now = self._clock()
        front = self._engine - self._began
        outside = self._ready - self._engine - sum(engine.values())
        self._first = False
        return {
            **({"front": front} if front > 0 else {}),
            "engine": max(outside, 0.0),
            **engine,
            "serving": now - self._ready,
            TOTAL: now - self._began,
        }


def tell(seconds: Mapping[str, float]) -> None:
    """Log how long a start took, for people and for programs."""
    rounded = {phase: round(took, 3) for phase, took in seconds.items()}
    _log.info(Event.STARTED, message=words(seconds), seconds=rounded)


def words(seconds: Mapping[str, float]) -> str:
    """Such as `ready after 3.2 s: front 0.4, engine 0.1, imports 0.5, ...`."""
    parts = ", ".join(f"{k} {v:.2f}" for k, v in seconds.items() if k != TOTAL)
    return f"ready after {seconds[TOTAL]:.2f} s: {parts}"
