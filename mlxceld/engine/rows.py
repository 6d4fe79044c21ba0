"""What each layer of the model sees as its cache in one decode step of several rows.

Linear layers run once for all rows. Whatever is a slot's own is handed out here: cells
of the pool, a sliding window, recurrent state. Attention goes row by row over each
row's own keys and values, so that no row is padded to another's length and nothing is
masked, merged or copied when a request joins or leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from mlxceld.engine import ragged
from mlxceld.engine.attention import attention, token_attention
from mlxceld.engine.caches import Layout
from mlxceld.engine.pool import Layer


class StepRows:
    """Where the rows of one decode step write and read; shared by all layers."""

    def __init__(self, starts: Sequence[int], positions: Sequence[int]) -> None:
        self.offsets = mx.array(positions)
        self.cells = mx.array([s + p for s, p in zip(starts, positions, strict=True)])
        self.spans = [(s, s + p + 1) for s, p in zip(starts, positions, strict=True)]
        # One row alone is served faster by MLX's own kernel.
        self.together = len(self.spans) > 1 and ragged.available()
        """Whether one kernel may read the spans of all rows."""
        self._read: dict[int | None, ragged.Spans] = {}

    def read(self, window: int | None) -> ragged.Spans:
        """What each row attends to: its span, or the last `window` tokens of it."""
        found = self._read.get(window)
        if found is None:
            spans = [self.seen(span, window) for span in self.spans]
            found = self._read[window] = ragged.Spans.of(spans)
        return found

    @staticmethod
    def seen(span: tuple[int, int], window: int | None) -> tuple[int, int]:
        """The cells of a span that a token at its end attends to."""
        start, end = span
        return (start if window is None else max(start, end - window)), end


@dataclass(frozen=True, slots=True)
class Window:
    """Stands for the mask of a layer that sees only the last `size` tokens."""

    size: int


@dataclass(frozen=True, slots=True)
class RowMasks:
    """One mask for each row, where rows keep their keys in windows of their own."""

    masks: tuple[Any, ...]


class PoolRows:
    """A layer of the pool: one write for all rows, attention over each row's span."""

    def __init__(self, layer: Layer, rows: StepRows) -> None:
        self.offset = rows.offsets
        self._layer = layer
        self._rows = rows

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        self._layer.write_rows(self._rows.cells, keys, values)
        self._new = keys, values
        return keys, values

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """For layers that attend to what another one has written."""
        return self._new

    def make_mask(
        self, n: int, *, window_size: int | None = None, **_wanted: Any
    ) -> Window | None:
        _one_token(n)
        return None if window_size is None else Window(window_size)

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[B, heads, 1, dim]` over each row's own span."""
        if not (mask is None or isinstance(mask, Window)):
            raise ValueError("a decode step knows no mask but a window")
        window = None if mask is None else mask.size
        whole = self._layer.whole() if self._rows.together and sinks is None else None
        if whole is not None and ragged.fits(queries, self._new, whole):
            spans = self._rows.read(window)
            return ragged.attend(queries, self._new, whole, spans, scale)
        out = []
        for index, span in enumerate(self._rows.spans):
            keys, values = self._layer.held(*self._rows.seen(span, window))
            query = queries[index : index + 1]
            out.append(token_attention(query, keys, values, scale, sinks))
        return mx.concatenate(out) if len(out) > 1 else out[0]


class OwnRows:
    """Attention caches that the slots have of their own, such as sliding windows."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self.offset = mx.array([cache.offset for cache in caches])
        self._caches = caches
        self._held: list[tuple[mx.array, mx.array]] = []

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        self._held = [
            cache.update_and_fetch(keys[i : i + 1], values[i : i + 1])
            for i, cache in enumerate(self._caches)
        ]
        self._new = keys, values
        return keys, values

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """For layers that attend to what another one has written."""
        return self._new

    def make_mask(self, n: int, **wanted: Any) -> RowMasks | None:
        _one_token(n)
        masks = tuple(cache.make_mask(n, **wanted) for cache in self._caches)
        return None if all(mask is None for mask in masks) else RowMasks(masks)

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Queries `[B, heads, 1, dim]` over what each row's cache returned."""
        if not (mask is None or isinstance(mask, RowMasks)):
            raise ValueError("a decode step knows no mask but its rows' own")
        out = []
        for index, (keys, values) in enumerate(self._held):
            own = None if mask is None else mask.masks[index]
            query = queries[index : index + 1]
            out.append(attention(query, keys, values, scale, own, sinks))
        return mx.concatenate(out) if len(out) > 1 else out[0]


class StateRows:
    """Recurrent state of the slots, put together for the step and taken apart again."""

    lengths = None
    left_padding = None

    def __init__(self, caches: Sequence[ArraysCache]) -> None:
        self._caches = caches

    def __getitem__(self, index: int) -> mx.array | None:
        parts = [cache[index] for cache in self._caches]
        known = next((part for part in parts if part is not None), None)
        if known is None or len(parts) == 1:
            return known
        # A row that reads its first token has no state yet, which means zeros.
        return mx.concatenate(
            [mx.zeros_like(known) if part is None else part for part in parts]
        )

    def __setitem__(self, index: int, value: mx.array) -> None:
        for row, cache in enumerate(self._caches):
            cache[index] = value[row : row + 1]

    def advance(self, n: int) -> None:
        """Nothing is padded, so there is nothing to count down."""

    def make_mask(self, n: int) -> None:
        _one_token(n)


class ListRows:
    """A layer that keeps several caches."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def __getitem__(self, index: int) -> Any:
        return self._parts[index]


def layer_rows(
    layout: Layout, caches: Sequence[Any], pooled: Callable[[], PoolRows]
) -> Any:
    """The step's view of one entry of the model's cache list.

    `caches` are that entry's caches, one of each row; `pooled` makes the view of the
    next layer of the pool.
    """
    if layout.shape is not None:
        return pooled()
    if layout.parts:
        columns = zip(*(cache.caches for cache in caches), strict=True)
        return ListRows(
            [
                layer_rows(part, column, pooled)
                for part, column in zip(layout.parts, columns, strict=True)
            ]
        )
    if isinstance(caches[0], ArraysCache):
        return StateRows(caches)
    return OwnRows(caches)


def _one_token(n: int) -> None:
    if n != 1:
        raise ValueError(f"a decode step reads one token of each row, not {n}")
