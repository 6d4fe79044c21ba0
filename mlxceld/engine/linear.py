"""Quantised layers for the rows of a decode step, on CUDA.

A step's activations are `[rows, 1, dim]`, and mlx on CUDA multiplies each row with the
packed weights by itself then: eight rows cost eight times one. Where there is a kernel
for them (packed.py), it takes all rows. Else the same rows as one matrix `[rows, dim]`
take MLX's matrix kernel, whose time hardly depends on their number; that wants eight
rows at least, and enough columns to keep the device busy. Where one of the two is
missing, rows stay apart.

All ways add up in another order, so logits differ by what rounding takes away.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxceld.engine import packed

_LEAST = 8
"""Rows that the matrix kernel needs; fewer are filled up with zeros."""

_PAYS = 32_000
"""Rows times columns from which it is faster.

Measured on an H200 with mlx 0.32.4, 4 bits in groups of 64: both take the same time at
3 rows of 8192 columns, 2 of 14336, 8 of 4096, whatever the length of the rows.
"""


def _together(x: mx.array, columns: int) -> bool:
    return x.ndim == 3 and x.shape[1] == 1 < x.shape[0] and x.shape[0] * columns > _PAYS


def _several_chunks(x: mx.array) -> bool:
    """Whether these are chunks of several prompts `[rows, L, dim]`.

    MLX on CUDA would multiply them one by one, and read the weights for each.
    """
    return x.ndim == 3 and x.shape[0] > 1 and x.shape[1] > 1


def _as_matrix(x: mx.array) -> mx.array:
    """`[rows, 1, dim]` as `[rows or 8, dim]`."""
    rows = x.shape[0]
    x = x.reshape(rows, x.shape[2])
    return x if rows >= _LEAST else mx.pad(x, [(0, _LEAST - rows), (0, 0)])


def _as_rows(y: mx.array, rows: int) -> mx.array:
    return y[:rows, None]


def _product(layer: Any, x: mx.array) -> mx.array | None:
    """`x` times the weights of a quantised layer by the kernel for few rows."""
    scales, offsets = layer["scales"], layer.get("biases")
    suits = packed.fits(
        x,
        scales,
        offsets,
        group_size=layer.group_size,
        bits=layer.bits,
        mode=layer.mode,
    )
    if not suits:
        return None
    return packed.multiply(x, layer["weight"], scales, offsets, layer.group_size)


class RowsLinear(nn.QuantizedLinear):
    """A quantised linear layer that takes a step's rows together."""

    def __call__(self, x: mx.array) -> mx.array:
        if _several_chunks(x):
            flat = super().__call__(x.reshape(-1, x.shape[2]))
            return flat.reshape(*x.shape[:2], flat.shape[1])
        found = _product(self, x)
        if found is not None:
            return found + self["bias"] if "bias" in self else found
        if not _together(x, self.weight.shape[0]):
            return super().__call__(x)
        return _as_rows(super().__call__(_as_matrix(x)), x.shape[0])


class RowsEmbedding(nn.QuantizedEmbedding):
    """A quantised embedding that does the same where it makes logits."""

    def as_linear(self, x: mx.array) -> mx.array:
        found = _product(self, x)
        if found is not None:
            return found
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
