"""What the scheduler needs from whatever runs the model.

The real one is `batch.ModelRunner`; tests use a scripted one. Both see slots as
numbers and cells as numbers: which array a cell lies in is theirs to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

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
    allowed: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    """Which tokens `[n_vocab]` a grammar allows next; None for all."""


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of one slot's prompt, to be read together with those of others."""

    slot: int
    start: int
    """First cell of the slot's span."""
    position: int
    """Tokens the slot holds before; the chunk's are written from there on."""
    tokens: Sequence[int]
    """At least one."""


@dataclass(frozen=True, slots=True)
class Probability:
    """The value of a sampled token, and the likeliest tokens with theirs."""

    value: float
    top: list[tuple[int, float]]


class Saved(Protocol):
    """The first `n` tokens of a slot, outside the pool."""

    @property
    def n(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Unusable(Exception):
    """A file of a saved text that cannot be used; says why, for the client."""


class TextFiles(Protocol):
    """Texts of slots in files of one folder, under names without any path."""

    def write(
        self, folder: str, name: str, tokens: Sequence[int], saved: Saved | None
    ) -> int:
        """Write a text, None for an empty one; the bytes of the file.

        Raises OSError, and `Unusable` for a name that leads out of the folder.
        """

    def read(
        self, folder: str, name: str, most: int
    ) -> tuple[list[int], Saved | None, int]:
        """The tokens, the text of at most `most` tokens, and the bytes of the file.

        Raises `Unusable` for everything that is not a whole file of this model.
        """


class Pending(Protocol):
    """A step on its way through the device."""

    def read(self) -> list[int]:
        """Wait for the step; the sampled token of each row, in the rows' order."""

    def probabilities(self) -> dict[int, Probability]:
        """By index of the row, for the rows whose request has `n_probs`."""


class Runner(Protocol):
    """Runs prompt chunks and decode steps over a pool of cells."""

    pipelined: bool
    """Whether a step may be queued before the one before it has been read."""

    reads_together: bool
    """Whether chunks of several prompts may be read as one, and whether that pays."""

    @property
    def takes_along(self) -> bool:
        """Whether a decode step can read a chunk as well, and is the faster for it."""

    @property
    def kv_bytes(self) -> int:
        """Bytes now allocated for keys, values and fixed state."""

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        """Read a chunk of a prompt into cells `start + position` and on.

        `position` 0 begins a new text: state that the slot kept is dropped.
        """

    def prefill_together(self, parts: Sequence[Part]) -> None:
        """Read chunks of several prompts as one, where `reads_together` allows it.

        The longest part says how much the others are filled up. When this raises, none
        of the parts counts as read.
        """

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Pending:
        """Queue one decode step; returns before the device has done it.

        With it, where `takes_along` allows it, a chunk that is in the cells when the
        step has been read.
        """

    def move(self, moves: Sequence[Move]) -> None:
        """Copy cells, in the order given."""

    def reusable(self, slot: int, n: int) -> int:
        """How many of the slot's first `n` tokens it can go back to, 0 for none.

        Keys and values of the pool allow any number; state that is not kept per token
        allows only where it was marked.
        """

    def rewind(self, slot: int, n: int) -> None:
        """Go back to the slot's first `n` tokens, a number that `reusable` gave."""

    def forget(self, slot: int) -> None:
        """What the slot holds is not wanted any more; its next text begins anew."""

    def mark(self, slot: int, n: int) -> None:
        """The slot holds `n` tokens, a whole prompt: worth going back to."""

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        """Give slot `target` the first `n` tokens of `source`.

        `n` is a number that `reusable` gave for the source; the starts are the first
        cells of the two spans.
        """

    def export(self, slot: int, start: int, n: int) -> Saved:
        """Copy the slot's first `n` tokens out of the pool; `n` as for `copy`."""

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        """Put an exported text into the cells `start` and on."""
