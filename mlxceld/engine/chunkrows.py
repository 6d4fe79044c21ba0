"""What each layer sees as its cache when chunks of several prompts are read as one.

The chunks lie side by side as `[B, L]`, the shorter ones filled up on the right, so
that the linear layers run once for all. What is filled up is never written to the pool,
and no token attends to it: each row's attention runs over its own tokens and span
alone, as if it were read by itself. Where all texts begin here, that is what the batch
holds itself, and one call does it for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlxceld.engine.attention import attention
from mlxceld.engine.pace import Pace
from mlxceld.engine.pool import Layer
from mlxceld.engine.runner import Part


class ChunkRows:
    """One layer of the pool for all rows; each begins where its slot has got to."""

    def __init__(
        self,
        layer: Layer,
        parts: Sequence[Part],
        offsets: mx.array,
        pace: Pace | None = None,
        *,
        filled: bool = False,
    ) -> None:
        """`offsets [B]` are the parts' positions; the layers share it, and the pace.

        `filled`: each row attends with its filling, so that fewer lengths come up.
        """
        self.offset = offsets
        self._layer = layer
        self._parts = parts
        self._pace = pace
        self._filled = filled
        self._whole: tuple[mx.array, mx.array] | None = None
        """The texts' keys and values, where the batch has all of them."""

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        if self._pace is not None:
            self._pace.step(keys, values)
        for index, part in enumerate(self._parts):
            one, n = slice(index, index + 1), len(part.tokens)
            self._layer.write_chunk(
                part.start + part.position, keys[one, :, :n], values[one, :, :n]
            )
        begins = not any(part.position for part in self._parts)
        self._whole = (
            (keys, values) if begins and self._layer.exact(keys, values) else None
        )
        return keys, values

    def make_mask(
        self,
        n: int,
        *,
        window_size: int | None = None,
        return_array: bool = False,
        **_wanted: Any,
    ) -> str:
        if window_size is not None or return_array:
            raise ValueError("chunks of several prompts know no mask but the causal")
        return "causal"

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[B, heads, L, dim]` over each row's own span."""
        if not (isinstance(mask, str) and mask == "causal"):
            raise ValueError("chunks of several prompts know no mask but the causal")
        if self._whole is not None:
            # A causal mask leaves out what is filled up on the right.
            return attention(queries, *self._whole, scale, "causal", sinks)
        out = []
        for index, part in enumerate(self._parts):
            # With the filling, which sees itself: lengths of texts then come up again,
            # each of which costs a device its preparations. Not past the pool's end,
            # and not where that costs nothing: what is no number in a cell behind the
            # text is none after it was multiplied by 0 either.
            n = queries.shape[2]
            first = part.start + part.position
            if not self._filled or first + n > self._layer.cells:
                n = len(part.tokens)
            keys, values = self._layer.view(part.start, first + n)
            query = queries[index : index + 1, :, :n]
            own = attention(query, keys, values, scale, "causal", sinks)
            spare = queries.shape[2] - n
            out.append(mx.pad(own, [(0, 0), (0, 0), (0, spare), (0, 0)]))
        return mx.concatenate(out)
