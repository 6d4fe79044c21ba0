"""A model that takes no work but a steady beat, and a daemon around it.

With it the cost of everything around a model shows: `python -m benchmarks.metronome
--beat 0.005 --rows 8` is a whole daemon whose engine gives each of eight rows a token
every 5 ms, as a small model on a fast device does. Scheduler, detokeniser, messages,
HTTP: all but the model is real.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.engine.runner import Probability, Row
from mlxceld.engine.text import Text
from mlxceld.plan import Geometry, make_plan

WORDS = tuple(f" word{number}".encode() for number in range(100))
"""What the model says: one token each, in turn."""

WINDOW = 1_000_000
"""Tokens of a slot: no answer gets there."""


@dataclass(slots=True)
class Beat:
    """A step on its way."""

    tokens: list[int]
    ready: float

    def read(self) -> list[int]:
        wait = self.ready - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        return self.tokens

    def probabilities(self) -> dict[int, Probability]:
        return {row: Probability(0.0, []) for row in range(len(self.tokens))}


@dataclass(frozen=True, slots=True)
class Exported:
    """A text outside the pool: nothing but its length."""

    n: int
    nbytes: int = 0


class Metronome:
    """A runner: each step is done one beat after the one before, never earlier."""

    pipelined = True
    reads_together = False
    takes_along = False
    kv_bytes = 0

    def __init__(self, beat: float) -> None:
        """`beat` in seconds; 0 is as fast as the host can."""
        self._beat = beat
        self._free = 0.0

    def step(self, rows: Sequence[Row], _part: object = None) -> Beat:
        self._free = max(self._free, time.monotonic()) + self._beat
        return Beat([row.position % len(WORDS) for row in rows], self._free)

    def reusable(self, _slot: int, n: int) -> int:
        return n

    def _nothing(self, *_what: Any) -> None:
        """Where nothing is kept, nothing has to be done."""

    prefill = prefill_together = mark = move = rewind = forget = copy = restore = (
        _nothing
    )

    def export(self, _slot: int, _start: int, n: int) -> Exported:
        return Exported(n)


def load(
    order: m.Load, tell: Callable[[m.Loading], None], *, beat: float = 0.0
) -> Engine:
    """A `Loader` of the metronome."""
    text = Text(
        WORDS, lambda words, _special: [len(part) % 90 for part in words.split()]
    )
    geometry = Geometry(WINDOW, 1024, measured=True)
    plan = make_plan(order.wish, geometry, None)
    info = m.ModelInfo(
        n_vocab=len(WORDS),
        n_ctx_train=WINDOW,
        architecture="metronome",
        chat_template="{% for m in messages %}{{ m.content }} {% endfor %}",
    )
    return Engine(text, Metronome(beat), info, plan)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beat", type=float, default=0.0, help="seconds of a step")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--fd", type=int, help="be the engine of this socket")
    given = parser.parse_args()
    if given.fd is not None:
        from mlxceld.engine.main import serve as engine

        engine(
            socket.socket(fileno=given.fd),
            lambda order, tell: load(order, tell, beat=given.beat),
        )
        return 0
    from mlxceld import logs
    from mlxceld.service import lifecycle, startup
    from mlxceld.settings import EngineSettings, ServerSettings, Settings

    logs.set_up("info", "json")
    settings = Settings(
        engine=EngineSettings(ctx_size=WINDOW, parallel=given.rows),
        server=ServerSettings(host=("127.0.0.1",), port=0),
    )
    command = [sys.executable, "-m", "benchmarks.metronome", "--beat", str(given.beat)]
    order = startup.load_message(settings)
    return asyncio.run(lifecycle.serve(settings, order, command))


if __name__ == "__main__":
    sys.exit(main())
