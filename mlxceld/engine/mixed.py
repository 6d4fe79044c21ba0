"""What each layer sees as its cache when a decode step takes a prompt chunk along.

Where reading the weights takes longer than to multiply with them, a chunk by itself
costs a whole step more. Here its tokens are further rows of the step, `[n + B, 1]`, the
chunk's first: the linear layers run once for all of them. Attention takes them apart
again, the chunk's tokens over their own span with the causal mask, each row over its
own.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from mlxceld.engine.attention import attention
from mlxceld.engine.pool import Layer
from mlxceld.engine.rows import PoolRows, StepRows, Window
from mlxceld.engine.runner import Part


class MixedRows:
    """A layer of the pool for the tokens of a chunk and the rows of a step."""

    def __init__(self, layer: Layer, part: Part, rows: StepRows) -> None:
        self._layer = layer
        self._part = part
        self._n = len(part.tokens)
        self._rows = PoolRows(layer, rows)
        chunk = mx.arange(part.position, part.position + self._n, dtype=mx.int32)
        self.offset = mx.concatenate([chunk, rows.offsets.astype(mx.int32)])

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Write keys and values `[n + B, kv_heads, 1, dim]`."""
        n, first = self._n, self._part.start + self._part.position
        self._layer.write_chunk(first, *map(_in_line, (keys[:n], values[:n])))
        self._rows.update_and_fetch(keys[n:], values[n:])
        return keys, values

    def make_mask(
        self, n: int, *, window_size: int | None = None, **wanted: Any
    ) -> Window | None:
        return self._rows.make_mask(n, window_size=window_size, **wanted)

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[n + B, heads, 1, dim]`, each over its own text so far."""
        n, part = self._n, self._part
        rows = self._rows.attend(queries[n:], scale, mask, sinks)
        window = mask.size if isinstance(mask, Window) else None
        seen = create_attention_mask(n, part.position, False, window)
        keys, values = self._layer.view(part.start, part.start + part.position + n)
        chunk = attention(_in_line(queries[:n]), keys, values, scale, seen, sinks)
        return mx.concatenate([chunk[0].swapaxes(0, 1)[:, :, None], rows])


def _in_line(rows: mx.array) -> mx.array:
    """Tokens `[n, heads, 1, dim]` as those of one text, `[1, heads, n, dim]`."""
    return rows[:, :, 0].swapaxes(0, 1)[None]
