"""The first chunks and steps of a GPU, before anybody waits for them.

Kernels are compiled when they are first used, steps are recorded when a number of rows
comes up for the first time (recorded.py), and on CUDA attention is prepared for each
pair of lengths, of a chunk and of the text so far: the first requests would pay for
all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mlxceld.engine.batch import ModelRunner
from mlxceld.engine.probe import nobody
from mlxceld.engine.prompts import MOST_ROWS, width
from mlxceld.engine.runner import Part, Row
from mlxceld.pacing import Pacing

_CHUNKS = (16, 32, 64, 128)
"""Lengths from which on MLX takes other kernels for the products of a chunk."""

_SECONDS = 10.0
"""How long the preparation of pairs of lengths may take, short texts first."""

_LONGEST = 8192
"""Tokens of the longest text that it is done for."""


def warm_up(
    runner: ModelRunner,
    pacing: Pacing,
    *,
    slots: int,
    room: int,
    chunk: int,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run what the requests to come will run, on cells that nobody uses yet.

    `room` is the most cells that one slot may use, `chunk` the most tokens that are
    read at once. Leaves nothing behind in the slots.
    """
    most = min(room, chunk)
    for n in sorted({min(n, most) for n in (*_CHUNKS, chunk)}):
        runner.prefill(0, 0, 0, [0] * n)
    for temperature in (0.0, 0.8):
        request = nobody(temperature)
        for n in _powers(slots):
            # One token for each row, in a cell of its own; a small pool may have fewer
            # cells than slots, and then rows write the same to the same.
            rows = [Row(slot, slot % room, 0, 0, 0.5, request) for slot in range(n)]
            runner.step(rows).read()
    if pacing.grain > 1 and runner.reads_together:
        until = clock() + _SECONDS
        shapes = [*_batches(pacing, slots, most), *_lengths(pacing.grain, room, most)]
        for parts in shapes:
            if clock() > until:
                break
            if len(parts) > 1:
                runner.prefill_together(parts)
            else:
                part = parts[0]
                runner.prefill(part.slot, part.start, part.position, part.tokens)
    for slot in range(slots):
        runner.forget(slot)


def _powers(slots: int) -> Iterator[int]:
    """1, 2, 4, ... and all slots. One between is recorded in less than 0.1 s."""
    n = 1
    while n < slots:
        yield n
        n *= 2
    yield slots


def _lengths(grain: int, room: int, most: int) -> Iterator[list[Part]]:
    """Chunks that end at each multiple of the grain, of all lengths that come up."""
    for end in range(grain, min(room, _LONGEST) + 1, grain):
        for n in range(grain, min(end, most) + 1, grain):
            yield [Part(0, 0, end - n, [0] * n)]


def _batches(pacing: Pacing, slots: int, most: int) -> Iterator[list[Part]]:
    """Batches of whole prompts, of all shapes that come up."""
    rows = 2
    while rows <= min(slots, MOST_ROWS):
        wide = width([1], pacing.grain)
        while rows * wide <= min(most, pacing.together):
            # All in the same cells: nobody reads what is in them.
            yield [Part(slot, 0, 0, [0] * wide) for slot in range(rows)]
            wide *= 2
        rows *= 2
