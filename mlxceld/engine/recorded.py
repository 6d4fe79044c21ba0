"""A decode step recorded once and replayed, so that Python does not build it anew.

A step is some twenty operations for each layer, and building them in Python takes as
long as a GPU needs for a small model's step. `mx.compile` records them once for a
number of rows and a grid of the attention kernel; from then on a step is one call. What
changes from step to step comes in as arrays: tokens, positions, and where rows lie.

Only where one kernel writes and reads the spans of all rows (ragged.py): the row-wise
path takes views whose sizes would be a part of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from mlxceld.engine import ragged
from mlxceld.engine.pool import Pool
from mlxceld.engine.ragged import Grid, Spans
from mlxceld.engine.rows import Window

_MOST = 128
"""Recordings that are kept: one takes some 100 KB of the host's memory for each layer,
and rows and grids make thousands of pairs in the long run."""


class Unrecordable(Exception):
    """A layer wants what only the row-wise path can do."""


class RecordedRows:
    """Where the rows of a step write and read, with the numbers on the device."""

    def __init__(self, where: mx.array, grid: Grid) -> None:
        """`where [2, B]` are positions and first cells."""
        self.offsets, self._starts = where[0], where[1]
        self._grid = grid
        self._read: dict[int | None, Spans] = {}

    def read(self, window: int | None) -> Spans:
        """What each row attends to: its span, or the last `window` tokens of it."""
        found = self._read.get(window)
        if found is None:
            starts, lengths, grid = self._starts, self.offsets + 1, self._grid
            if window is not None:
                starts = starts + mx.maximum(lengths - window, 0)
                lengths = mx.minimum(lengths, window)
                grid = grid.within(window)
            array = mx.stack([starts, lengths])
            found = self._read[window] = Spans(array, grid)
        return found


class RecordedLayer:
    """What a layer of the model sees as its cache while a step is recorded."""

    def __init__(self, pool: tuple[mx.array, mx.array], rows: RecordedRows) -> None:
        """`pool` are the layer's keys and values `[cells, kv_heads, dim]`."""
        self.offset = rows.offsets
        self._pool = pool
        self._rows = rows
        self._new: tuple[mx.array, mx.array] | None = None
        self.written = False

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Take the rows' new keys and values; `attend` writes them."""
        self._new = keys, values
        return keys, values

    def make_mask(
        self, n: int, *, window_size: int | None = None, **_wanted: Any
    ) -> Window | None:
        return None if window_size is None else Window(window_size)

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[B, heads, 1, dim]` over each row's own span."""
        new, odd = self._new, not (mask is None or isinstance(mask, Window))
        if new is None or self.written or odd or sinks is not None:
            raise Unrecordable
        if not ragged.fits(queries, new, self._pool):
            raise Unrecordable
        self.written = True
        spans = self._rows.read(None if mask is None else mask.size)
        return ragged.attend(queries, new, self._pool, spans, scale)


class RecordedStep:
    """The model over the rows of a step, for a pool that holds all its layers."""

    def __init__(self, model: Any, pool: Pool) -> None:
        self._model = model
        self._pool = pool
        self._recorded: dict[tuple[Grid, int], Callable[..., mx.array]] = {}
        """By grid and number of rows, the one that was used last at the end."""
        self._sizes: set[tuple[Grid, int]] = set()
        """Of all that were recorded, also those that are not kept any more."""
        self._possible = all(layer.whole() is not None for layer in pool.layers)

    @property
    def possible(self) -> bool:
        """Whether the device has the kernel, and the model can be recorded."""
        return self._possible and ragged.available()

    def __call__(
        self, starts: Sequence[int], positions: Sequence[int], read: mx.array
    ) -> mx.array | None:
        """Logits `[B, V]` after the rows have read `read [B]`.

        None, once and for all, where the model cannot be recorded.
        """
        grid = Grid.of(len(starts), max(positions) + 1)
        size = grid, len(starts)
        run = self._recorded.pop(size, None) or mx.compile(self._recording(grid))
        self._recorded[size] = run
        if len(self._recorded) > _MOST:
            del self._recorded[next(iter(self._recorded))]
        where = mx.array([positions, starts], dtype=mx.int32)
        arrays = [array for layer in self._pool.layers for array in layer.arrays()]
        try:
            logits = run(read, where, *arrays)
        except Exception:
            if size in self._sizes:
                raise
            # Models may do what cannot be recorded, such as to look at a value.
            self._possible = False
            return None
        self._sizes.add(size)
        return logits

    def _recording(self, grid: Grid) -> Callable[..., mx.array]:
        def run(read: mx.array, where: mx.array, *arrays: mx.array) -> mx.array:
            rows = RecordedRows(where, grid)
            pairs = zip(arrays[::2], arrays[1::2], strict=True)
            layers = [RecordedLayer(pair, rows) for pair in pairs]
            logits: mx.array = self._model(read[:, None], cache=layers)[:, -1]
            if not all(layer.written for layer in layers):
                raise Unrecordable
            return logits

        return run
