"""Quantised linear layers for the rows of a decode step, on CUDA.

A step's activations are `[rows, 1, dim]`, and mlx on CUDA multiplies each row with the
packed weights by itself then: eight rows cost eight times one. The same rows as one
matrix `[rows, dim]` take its matrix kernel, whose time hardly depends on their number.
That kernel wants eight rows at least, and enough columns to keep the device busy;
where one of the two is missing, rows stay apart.

Both ways add up in another order, so logits differ by what float16 rounds away.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

_LEAST = 8
"""Rows that the matrix kernel needs; fewer are filled up with zeros."""

_PAYS = 32_000
"""Rows times columns from which it is faster.

Measured on an H200 with mlx 0.32.4, 4 bits in groups of 64: both take the same time at
3 rows of 8192 columns, 2 of 14336, 8 of 4096, whatever the length of the rows.
"""


def _together(x: mx.array, columns: int) -> bool:
    return x.ndim == 3 and x.shape[1] == 1 < x.shape[0] and x.shape[0] * columns > _PAYS


def _as_matrix(x: mx.array) -> mx.array:
    """`[rows, 1, dim]` as `[rows or 8, dim]`."""
    rows = x.shape[0]
    x = x.reshape(rows, x.shape[2])
    return x if rows >= _LEAST else mx.pad(x, [(0, _LEAST - rows), (0, 0)])


def _as_rows(y: mx.array, rows: int) -> mx.array:
    return y[:rows, None]


class RowsLinear(nn.QuantizedLinear):
    """A quantised linear layer that takes a step's rows as one matrix."""

    def __call__(self, x: mx.array) -> mx.array:
        if not _together(x, self.weight.shape[0]):
            return super().__call__(x)
        return _as_rows(super().__call__(_as_matrix(x)), x.shape[0])


class RowsEmbedding(nn.QuantizedEmbedding):
    """A quantised embedding that does the same where it makes logits."""

    def as_linear(self, x: mx.array) -> mx.array:
        if not _together(x, self.weight.shape[0]):
            return super().as_linear(x)
        return _as_rows(super().as_linear(_as_matrix(x)), x.shape[0])


_TWINS: dict[type, type] = {
    nn.QuantizedLinear: RowsLinear,
    nn.QuantizedEmbedding: RowsEmbedding,
}


def join_rows(model: Any) -> None:
    """Let the quantised layers of a model take a step's rows together.

    Layers of other classes, also ones derived from MLX's, stay as they are.
    """
    _swap(model, _TWINS)


def part_rows(model: Any) -> None:
    """Undo `join_rows`."""
    _swap(model, {new: old for old, new in _TWINS.items()})


def _swap(model: Any, twins: dict[type, type]) -> None:
    for module in model.modules():
        twin = twins.get(type(module))
        if twin is not None:
            # The class alone differs: weights and settings are the module's own.
            module.__class__ = twin
