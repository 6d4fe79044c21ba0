"""Attention of all rows of a decode step in one kernel, for CUDA.

Row by row, a step costs a handful of operations for each row and layer, and on a GPU
the host cannot queue them as fast as a small model is done with them. Here one kernel
writes the new keys and values of all rows and reads every row's own span of the pool:
no padding, no mask and no copy. Each block takes a stretch of one row's cells and all
query heads that share a key head; the last block of a row puts its stretches together.

The kernel writes into arrays that MLX takes for its inputs. That is what lets the next
step be queued while this one runs: MLX keeps whatever a queued operation reads until
that is done, and an array that is kept is copied by an ordinary write, the whole pool
with it. A step writes cells that no earlier step reads, and steps run in the order in
which they were queued.

The row-wise path in rows.py is the reference, and what serves wherever this does not:
other devices, quantised keys, sinks, and head sizes that do not fill lanes of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mlx.core as mx

from mlxceld.engine.attention import on_cuda
from mlxceld.engine.ragged_source import HEADER, SOURCE
from mlxceld.working import MOST_PARTS, STRETCH, power

_THREADS = 128

_DIMS = (64, 128, 256)
"""Sizes of heads whose lanes of eight values divide a warp."""

_MOST_HEADS = 8
"""Query heads that one block takes; more would not fit into registers."""

_MOST_GROUPS = 65536
"""Rows times groups of heads of a step: the counters that there are. 256 rows may have
as many groups each; models whose heads share no keys have one for each head."""


@dataclass(frozen=True, slots=True)
class Grid:
    """How the rows of a step are cut up: what does not change with every token."""

    stretch: int
    """Cells that one block reads."""
    parts: int
    """Blocks for a row: enough for the longest."""

    @classmethod
    def of(cls, rows: int, longest: int) -> Grid:
        """For rows that read up to `longest` cells.

        Few rows are cut into shorter stretches, to fill the device. Numbers are powers
        of two, so that rows that grow seldom need another grid.
        """
        least = min(STRETCH, max(STRETCH // 4, power(32 * rows)))
        stretch = max(least, power(-(-longest // MOST_PARTS)))
        return cls(stretch, power(-(-longest // stretch)))

    def within(self, window: int) -> Grid:
        """The same for rows that read no more than `window` cells."""
        return Grid(self.stretch, min(self.parts, -(-window // self.stretch)))


@dataclass(frozen=True, slots=True)
class Spans:
    """Where the rows of one step read, the new cell included."""

    array: mx.array
    """`[2, B]`: first cells and lengths."""
    grid: Grid

    @classmethod
    def of(cls, spans: Sequence[tuple[int, int]]) -> Spans:
        """`spans` are the first cell and the one past the last, of each row."""
        firsts = [start for start, _ in spans]
        lengths = [end - start for start, end in spans]
        array = mx.array([firsts, lengths], dtype=mx.int32)
        return cls(array, Grid.of(len(spans), max(lengths)))


def available() -> bool:
    """Whether the kernel can run on the device in use."""
    return on_cuda()


def fits(
    queries: mx.array,
    new: tuple[mx.array, mx.array],
    pool: tuple[mx.array, mx.array],
) -> bool:
    """Whether the kernel serves these; see `attend`."""
    rows, heads, _, dim = queries.shape
    return (
        dim in _DIMS
        and rows * heads // _taken(heads // pool[0].shape[1]) <= _MOST_GROUPS
        and all(array.shape[-1] == dim for array in (*new, *pool))
        and all(array.dtype == queries.dtype for array in (*new, *pool))
    )


def attend(
    queries: mx.array,
    new: tuple[mx.array, mx.array],
    pool: tuple[mx.array, mx.array],
    spans: Spans,
    scale: float,
) -> mx.array:
    """Queries `[B, heads, 1, dim]` over each row's own cells of one layer of the pool.

    `new` are the rows' keys and values `[B, kv_heads, 1, dim]`, which are written to
    the last cell of each span; `pool` are those of the layer, `[cells, kv_heads, dim]`.
    Returns `[B, heads, 1, dim]`.
    """
    rows, heads, _, dim = queries.shape
    kv_heads = pool[0].shape[1]
    shared_by = heads // kv_heads
    taken = _taken(shared_by)
    parts = spans.grid.parts
    out, _, _ = _kernel()(
        inputs=[
            queries,
            *new,
            *pool,
            spans.array,
            _number(scale, mx.float32),
            _number(spans.grid.stretch, mx.int32),
            _counters(),
        ],
        template=[
            ("T", queries.dtype),
            ("D", dim),
            ("HEADS", taken),
            ("SHARED_BY", shared_by),
            ("KV_HEADS", kv_heads),
            ("THREADS", _THREADS),
            ("MOST_PARTS", MOST_PARTS),
        ],
        grid=(parts * _THREADS, heads // taken, rows),
        threadgroup=(_THREADS, 1, 1),
        output_shapes=[
            (rows, heads, 1, dim),
            (rows, heads, parts, dim),
            (rows, heads, parts, 2),
        ],
        output_dtypes=[queries.dtype, mx.float32, mx.float32],
    )
    result: mx.array = out
    return result


def _taken(shared_by: int) -> int:
    """Query heads that one block takes, of those that share a key head."""
    return next(n for n in range(_MOST_HEADS, 0, -1) if shared_by % n == 0)


@cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel(
        name="ragged_attention",
        input_names=[
            "queries",
            "new_keys",
            "new_values",
            "keys",
            "values",
            "spans",
            "scale",
            "stretch",
            "arrived",
        ],
        output_names=["out", "partial", "told"],
        header=HEADER,
        source=SOURCE,
    )


@cache
def _number(value: float, dtype: mx.Dtype) -> mx.array:
    return _settled(mx.array([value], dtype=dtype))


@cache
def _counters() -> mx.array:
    """Of the blocks that are done; the kernel leaves them at zero."""
    return _settled(mx.array([0] * _MOST_GROUPS, dtype=mx.int32))


def _settled(array: mx.array) -> mx.array:
    # Made within a recording, it must not become a part of that.
    mx.eval(array)
    return array
