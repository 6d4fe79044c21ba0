"""What the scheduler needs from whatever runs the model.

The real one is `batch.ModelRunner`; tests use a scripted one. Both see slots as
numbers and cells as numbers: which array a cell lies in is theirs to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlxceld.engine.slot import Request
from mlxceld.engine.spans import Move


@dataclass(frozen=True, slots=True)
class Row:
    """A slot's line in a decode step."""

    slot: int
    start: int
    """First cell of the slot's span."""
    position: int
    """Tokens the slot holds before this step; the new one is written there."""
    token: int | None
    """The token to read; None for the one that the step before sampled for the slot."""
    uniform: float
    """A random number in [0, 1) that picks the next token."""
    request: Request


class Pending(Protocol):
    """A step on its way through the device."""

    def read(self) -> list[int]:
        """Wait for the step; the sampled token of each row, in the rows' order."""


class Runner(Protocol):
    """Runs prompt chunks and decode steps over a pool of cells."""

    trimmable: bool
    """Whether a slot can go back to an earlier token: what prefix reuse needs."""

    pipelined: bool
    """Whether a step may be queued before the one before it has been read."""

    @property
    def kv_bytes(self) -> int:
        """Bytes now allocated for keys, values and fixed state."""

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        """Read a chunk of a prompt into cells `start + position` and on.

        `position` 0 begins a new text: state that the slot kept is dropped.
        """

    def step(self, rows: Sequence[Row]) -> Pending:
        """Queue one decode step; returns before the device has done it."""

    def move(self, moves: Sequence[Move]) -> None:
        """Copy cells, in the order given."""
