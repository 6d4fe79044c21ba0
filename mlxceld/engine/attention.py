"""Attention over one text's keys and values, and the hook that lets a cache use it.

mlx-lm's models call `scaled_dot_product_attention(..., cache=...)`, which each of them
imports by name from `mlx_lm.models.base`. Replacing that one attribute before the first
model module is imported lets a cache that has an `attend` method answer; every other
cache behaves as before. Nothing else of mlx-lm is changed; lean.py imports less of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx
from mlx_lm.models import base

_original = base.scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class Packed:
    """Quantised keys or values: `[1, kv_heads, cells, ...]` codes, scales, offsets."""

    parts: tuple[mx.array, mx.array, mx.array]
    bits: int
    group: int

    def unpacked(self) -> mx.array:
        """`[1, kv_heads, cells, dim]`, of the type of the scales."""
        return mx.dequantize(*self.parts, group_size=self.group, bits=self.bits)


Held: TypeAlias = mx.array | Packed
"""Keys or values as the pool holds them."""


def on_cuda() -> bool:
    """Whether MLX's default device is a GPU under CUDA."""
    return bool(mx.default_device() == mx.gpu) and not mx.metal.is_available()


def plain(held: Held) -> mx.array:
    """Keys or values as an array, whatever they are held as."""
    return held.unpacked() if isinstance(held, Packed) else held


def attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    mask: Any,
    sinks: mx.array | None,
) -> mx.array:
    """Attention of one text: queries `[1, heads, L, dim]`, keys `[1, kv_heads, ...]`.

    `mask` is None, "causal" or an array that fits the scores `[1, heads, L, cells]`.
    Keys and values may be of another type than the queries, as they are stored.
    """
    return mx.fast.scaled_dot_product_attention(
        queries,
        keys.astype(queries.dtype),
        values.astype(queries.dtype),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )


def token_attention(
    query: mx.array, keys: Held, values: Held, scale: float, sinks: mx.array | None
) -> mx.array:
    """Attention of one token `[1, heads, 1, dim]` over keys and values as held.

    Products with packed ones need no unpacked copy. Sinks only work in the fused
    kernel, which does, and MLX on CUDA has no packed product over several heads.
    """
    if isinstance(keys, mx.array) and isinstance(values, mx.array):
        return attention(query, keys, values, scale, None, sinks)
    if sinks is not None or on_cuda():
        return attention(query, plain(keys), plain(values), scale, None, sinks)
    _, heads, _, dim = query.shape
    kv_heads = (keys if isinstance(keys, mx.array) else keys.parts[0]).shape[1]
    # The heads that share a key are the lines of one product.
    grouped = (query * scale).reshape(1, kv_heads, heads // kv_heads, dim)
    weights = mx.softmax(_product(grouped, keys, transpose=True), -1, precise=True)
    return _product(weights, values, transpose=False).reshape(1, heads, 1, -1)


def _product(left: mx.array, held: Held, *, transpose: bool) -> mx.array:
    """`left [1, kv_heads, lines, n]` times what is held, of which head by head."""
    if isinstance(held, mx.array):
        right = held.astype(left.dtype)
        return left @ (right.swapaxes(-1, -2) if transpose else right)
    codes, scales, offsets = held.parts
    return mx.quantized_matmul(
        left,
        codes,
        scales,
        offsets,
        transpose=transpose,
        group_size=held.group,
        bits=held.bits,
    )


def scaled_dot_product_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: Any,
    scale: float,
    mask: Any,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention over what the cache holds; queries are `[B, heads, L, head_dim]`."""
    attend = getattr(cache, "attend", None)
    if attend is not None:
        result: mx.array = attend(queries, scale, mask, sinks)
        return result
    return _original(queries, keys, values, cache, scale, mask, sinks)


def install() -> None:
    """Put the replacement in place; calling it again does nothing.

    Raises RuntimeError when a model was imported before: its module holds the original.
    """
    if base.scaled_dot_product_attention is scaled_dot_product_attention:
        return
    late = [
        name
        for name, module in sys.modules.items()
        if name.startswith("mlx_lm.models.")
        and module is not base
        and getattr(module, "scaled_dot_product_attention", None) is _original
    ]
    if late:
        raise RuntimeError(f"{', '.join(late)} imported before the attention hook")
    base.scaled_dot_product_attention = scaled_dot_product_attention
