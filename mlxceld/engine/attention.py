"""The one place where mlx-lm is changed: a cache may answer attention itself.

mlx-lm's models call `scaled_dot_product_attention(..., cache=...)`, which each of them
imports by name from `mlx_lm.models.base`. Replacing that one attribute before the first
model module is imported lets a cache that has an `attend` method answer; every other
cache behaves as before.
"""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx
from mlx_lm.models import base

_original = base.scaled_dot_product_attention
_BEFORE = ("mlx_lm.models.base", "mlx_lm.models.cache", "mlx_lm.models.rope_utils")


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
        and getattr(module, "scaled_dot_product_attention", None) is _original
        and name not in _BEFORE
    ]
    if late:
        raise RuntimeError(f"{', '.join(late)} imported before the attention hook")
    base.scaled_dot_product_attention = scaled_dot_product_attention
