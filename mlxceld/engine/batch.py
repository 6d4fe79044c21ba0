"""Runs the model for the scheduler: prompt chunks and decode steps over the pool.

A decode step sends all rows through the model as one batch `[B, 1]`; the linear layers
are shared and attention goes row by row. Models whose caches cannot be shared that way
(`batched` False) take one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxceld.engine import caches as slot_caches
from mlxceld.engine.caches import CacheMap
from mlxceld.engine.pool import Pool, RowsCache, SpanCache, StepRows
from mlxceld.engine.runner import Row
from mlxceld.engine.sampling import Sampler
from mlxceld.engine.spans import Move


class Step:
    """Sampled tokens on their way: `[B]` on the device until they are read."""

    def __init__(self, tokens: mx.array) -> None:
        self._tokens = tokens

    def read(self) -> list[int]:
        tokens: list[int] = self._tokens.tolist()
        return tokens


class ModelRunner:
    """The `Runner` of a loaded model. Lives on one thread, like every MLX array."""

    def __init__(
        self,
        model: Any,
        map_: CacheMap,
        sampler: Sampler,
        *,
        slots: int,
        cells: int,
        cell_major: bool,
        batched: bool,
        pipelined: bool,
    ) -> None:
        self.batched = batched and map_.all_pooled
        self.pipelined = pipelined
        self.trimmable = map_.all_pooled
        self._model = model
        self._map = map_
        self._sampler = sampler
        self._pool = Pool(list(map_.pooled.values()), cells, cell_major=cell_major)
        self._layers = dict(zip(map_.pooled, self._pool.layers, strict=True))
        self._own: list[list[Any]] = [[] for _ in range(slots)]
        # The token that each slot sampled last, so that the next step need not wait
        # for the host to see it.
        self._last = mx.zeros((slots,), dtype=mx.int32)

    @property
    def kv_bytes(self) -> int:
        """Bytes allocated for the pool and for the caches that slots own."""
        return self._pool.nbytes + sum(map(slot_caches.nbytes, self._own))

    @property
    def layer_bytes(self) -> int:
        """Bytes of the largest layer of the pool: what a copied write would cost."""
        return max((layer.nbytes for layer in self._pool.layers), default=0)

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        """Read a chunk of a prompt and wait until it is in the cells."""
        caches = self._single(slot, start, position)
        self._model(mx.array([tokens]), cache=caches)
        slot_caches.let_go(self._own[slot])
        # The logits of a prompt are not wanted. A look at one written cell of each
        # layer makes the device do the rest, and names no pool array.
        last = start + position + len(tokens) - 1
        pending = [layer.view(last, last + 1) for layer in self._pool.layers]
        mx.eval(pending, slot_caches.arrays(self._own[slot]))

    def step(self, rows: Sequence[Row]) -> Step:
        """Queue one token of every row."""
        slots = mx.array([row.slot for row in rows])
        read = self._inputs(rows, slots)
        if self.batched:
            logits = self._together(rows, read)
        else:
            logits = self._one_by_one(rows, read)
        tokens = self._sampler(logits, rows, read).astype(mx.int32)
        self._last[slots] = tokens
        mx.async_eval(tokens, self._last)
        return Step(tokens)

    def move(self, moves: Sequence[Move]) -> None:
        self._pool.move(moves)

    def _inputs(self, rows: Sequence[Row], slots: mx.array) -> mx.array:
        """The token each row reads, `[B]`."""
        known = [row.token for row in rows]
        if None not in known:
            return mx.array(known, dtype=mx.int32)
        sampled = self._last[slots]
        if all(token is None for token in known):
            return sampled
        host = mx.array([-1 if token is None else token for token in known])
        return mx.where(host < 0, sampled, host.astype(mx.int32))

    def _together(self, rows: Sequence[Row], read: mx.array) -> mx.array:
        """Logits `[B, V]` of one batch."""
        where = StepRows([row.start for row in rows], [row.position for row in rows])
        caches = [RowsCache(layer, where) for layer in self._pool.layers]
        logits: mx.array = self._model(read[:, None], cache=caches)
        return logits[:, -1]

    def _one_by_one(self, rows: Sequence[Row], read: mx.array) -> mx.array:
        """Logits `[B, V]`, each row run alone."""
        out = []
        for index, row in enumerate(rows):
            caches = self._single(row.slot, row.start, row.position)
            out.append(self._model(read[index : index + 1][None], cache=caches)[:, -1])
        return mx.concatenate(out)

    def _single(self, slot: int, start: int, position: int) -> list[Any]:
        """The cache list of one slot: spans of the pool and caches of its own."""
        if not self._map.all_pooled and position == 0:
            fresh = make_prompt_cache(self._model)
            self._own[slot] = [
                cache for index, cache in enumerate(fresh) if index not in self._layers
            ]
        own = iter(self._own[slot])
        return [
            SpanCache(self._layers[index], start, position)
            if index in self._layers
            else next(own)
            for index in range(self._map.count)
        ]
