"""The KV pool: one array of keys and one of values per layer, and views of its cells.

A write must happen in place: the arrays have one owner, views are made inside a step
and die with it, and no step names the arrays themselves when it is queued. Otherwise
MLX copies the whole array at the next write.

Only this file knows how the cells lie in memory. Head-major `[heads, cells, dim]` is
right wherever it works: a row's view needs no copy. mlx on CUDA has computed wrong
values in its one-query attention kernel when such a view starts past cell 0; there the
layout is cell-major `[cells, heads, dim]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from mlxceld.engine.spans import Move


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one layer and one token."""

    heads: int
    key_dim: int
    value_dim: int
    dtype: mx.Dtype

    @property
    def bytes_per_token(self) -> int:
        return self.heads * (self.key_dim + self.value_dim) * self.dtype.size


class Layer:
    """Keys and values of one layer for all slots."""

    def __init__(self, shape: LayerShape, cells: int, *, cell_major: bool) -> None:
        self._cell_major = cell_major

        def allocate(dim: int) -> mx.array:
            lead = (cells, shape.heads) if cell_major else (shape.heads, cells)
            return mx.zeros((*lead, dim), dtype=shape.dtype)

        self._keys = allocate(shape.key_dim)
        self._values = allocate(shape.value_dim)

    @property
    def nbytes(self) -> int:
        return int(self._keys.nbytes + self._values.nbytes)

    def arrays(self) -> tuple[mx.array, mx.array]:
        """The arrays themselves, to be evaluated before anything is written."""
        return self._keys, self._values

    def write_rows(self, cells: mx.array, keys: mx.array, values: mx.array) -> None:
        """One token of each row: `cells [B]`, keys and values `[B, heads, 1, dim]`."""
        if self._cell_major:
            self._keys[cells] = keys[:, :, 0]
            self._values[cells] = values[:, :, 0]
        else:
            self._keys[:, cells] = keys[:, :, 0].swapaxes(0, 1)
            self._values[:, cells] = values[:, :, 0].swapaxes(0, 1)

    def write_chunk(self, cell: int, keys: mx.array, values: mx.array) -> None:
        """Consecutive tokens of one slot from `cell` on; `[1, heads, L, dim]`."""
        end = cell + keys.shape[2]
        if self._cell_major:
            self._keys[cell:end] = keys[0].swapaxes(0, 1)
            self._values[cell:end] = values[0].swapaxes(0, 1)
        else:
            self._keys[:, cell:end] = keys[0]
            self._values[:, cell:end] = values[0]

    def view(self, start: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values of the cells `start` to `end`, `[1, heads, cells, dim]`."""
        if self._cell_major:
            return (
                self._keys[start:end].swapaxes(0, 1)[None],
                self._values[start:end].swapaxes(0, 1)[None],
            )
        return self._keys[None, :, start:end], self._values[None, :, start:end]

    def move(self, source: int, target: int, n: int) -> None:
        """Copy `n` cells; the ranges may overlap."""
        keys, values = self.view(source, source + n)
        # Real copies, finished before the write: a view alive during the write would
        # make MLX copy the whole layer.
        keys, values = mx.array(keys * 1), mx.array(values * 1)
        mx.eval(keys, values)
        self.write_chunk(target, keys, values)
        self.settle(target)

    def settle(self, cell: int) -> None:
        """Wait for all writes by looking at one cell, which leaves nothing alive."""
        mx.eval(self.view(cell, cell + 1))


class SpanCache:
    """One layer of one slot, in the shape of mlx-lm's KVCache: for prompt chunks."""

    def __init__(self, layer: Layer, start: int, position: int) -> None:
        self.offset = position
        self._layer = layer
        self._start = start

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        self._layer.write_chunk(self._start + self.offset, keys, values)
        self.offset += keys.shape[2]
        return self._layer.view(self._start, self._start + self.offset)

    def make_mask(self, n: int, **wanted: Any) -> Any:
        return create_attention_mask(n, offset=self.offset, **wanted)


class StepRows:
    """Where the rows of one decode step write and read; shared by all layers."""

    def __init__(self, starts: Sequence[int], positions: Sequence[int]) -> None:
        self.offsets = mx.array(positions)
        self.cells = mx.array([s + p for s, p in zip(starts, positions, strict=True)])
        self.spans = [(s, s + p + 1) for s, p in zip(starts, positions, strict=True)]


@dataclass(frozen=True, slots=True)
class Window:
    """Stands for the mask of a layer that sees only the last `size` tokens."""

    size: int


class RowsCache:
    """One layer of a decode step: one write for all rows, attention row by row.

    No row is padded to another's length, so nothing is masked, merged or copied when
    a request joins or leaves.
    """

    def __init__(self, layer: Layer, rows: StepRows) -> None:
        self.offset = rows.offsets
        self._layer = layer
        self._rows = rows

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        self._layer.write_rows(self._rows.cells, keys, values)
        return keys, values

    def make_mask(
        self, n: int, *, window_size: int | None = None, **_wanted: Any
    ) -> Window | None:
        if n != 1:
            raise ValueError(f"a decode step reads one token of each row, not {n}")
        return None if window_size is None else Window(window_size)

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[B, heads, 1, dim]` over each row's own span."""
        if not (mask is None or isinstance(mask, Window)):
            raise ValueError("a decode step knows no mask but a window")
        out = []
        for index, (start, end) in enumerate(self._rows.spans):
            if mask is not None:
                start = max(start, end - mask.size)
            keys, values = self._layer.view(start, end)
            out.append(
                mx.fast.scaled_dot_product_attention(
                    queries[index : index + 1], keys, values, scale=scale, sinks=sinks
                )
            )
        return mx.concatenate(out) if len(out) > 1 else out[0]


class Pool:
    """All layers of the pool."""

    def __init__(
        self, shapes: Sequence[LayerShape], cells: int, *, cell_major: bool
    ) -> None:
        """Allocates everything at once; raises RuntimeError when memory is short."""
        self.layers = [Layer(s, cells, cell_major=cell_major) for s in shapes]
        for layer in self.layers:
            mx.eval(layer.arrays())

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def move(self, moves: Sequence[Move]) -> None:
        """Carry out moves in order, layer by layer: one layer's copy at a time."""
        for layer in self.layers:
            for move in moves:
                layer.move(move.source, move.target, move.n)
