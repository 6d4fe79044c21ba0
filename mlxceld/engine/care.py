"""How long the front bears with its engine, and what it says of one that is lost."""

from __future__ import annotations

import signal
from dataclasses import dataclass

RESTART_WINDOW = 600.0
"""Seconds within which the crashes are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How the front looks after its engine; times in seconds."""

    watchdog: float = 60.0
    """Silence after which a running engine is ended; 0 is never."""
    max_restarts: int = 5
    """Starts after a crash, within `RESTART_WINDOW`; one crash more ends the daemon."""
    sleep_after: float = -1.0
    """Idle time after which the engine is ended until it is needed; 0 or less: never.
    """

    @property
    def tick(self) -> float | None:
        """Time between two looks at the engine; None when there is nothing to see."""
        spans = [span for span in (self.watchdog, self.sleep_after) if span > 0]
        return min(1.0, *(span / 4 for span in spans)) if spans else None


@dataclass(frozen=True, slots=True)
class Loss:
    """How a running engine came to its end."""

    how: str
    """After the words `the engine`: `was killed by SIGKILL`."""
    status: int | None
    """Its exit status, minus the signal that ended it; None when it never started."""


class LoadError(Exception):
    """The model could not be loaded; `config` says whether settings are at fault."""

    def __init__(self, what: str, hint: str = "", *, config: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.config = config


def how_it_ended(status: int) -> str:
    """`was killed by SIGKILL` or `ended with status 3`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def failed_load(loss: Loss) -> LoadError:
    """What to say when the first engine is gone before it was ready."""
    if loss.status is None:
        return LoadError(f"the engine {loss.how}")
    if loss.status == -signal.SIGKILL:
        return LoadError(
            "the engine was killed by SIGKILL while loading, most likely out of memory",
            "lower engine.ctx_size or engine.parallel, or use a smaller model",
        )
    if loss.status < 0:
        return LoadError(f"the engine {loss.how} while loading")
    return LoadError(f"the engine ended while loading (status {loss.status})")


def too_many(loss: Loss, crashes: int) -> LoadError:
    if crashes == 1:
        return LoadError(
            f"the engine {loss.how} and is not started again",
            "set engine.max_restarts above 0",
        )
    return LoadError(
        f"the engine crashed {crashes} times within {RESTART_WINDOW / 60:g} minutes; "
        f"the last time it {loss.how}"
    )
