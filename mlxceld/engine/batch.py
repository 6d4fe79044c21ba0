"""Runs the model for the scheduler: prompt chunks and decode steps over the pool.

A decode step sends all rows through the model as one batch `[B, 1]`; the linear layers
are shared and attention goes row by row. Models that the probe found unfit for that
(`batched` False) take one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxceld.engine import caches as slot_caches
from mlxceld.engine import prompts
from mlxceld.engine.caches import CacheMap
from mlxceld.engine.chunkrows import ChunkRows
from mlxceld.engine.head import Head
from mlxceld.engine.mixed import MixedRows
from mlxceld.engine.pace import Pace, pace
from mlxceld.engine.pool import Pool, SpanCache, wait_for_queue
from mlxceld.engine.recorded import RecordedStep
from mlxceld.engine.rows import PoolRows, StepRows, layer_rows
from mlxceld.engine.runner import Part, Probability, Row, Saved
from mlxceld.engine.sampling import Sampled, Sampler
from mlxceld.engine.spans import Move


class Step:
    """Sampled tokens on their way: `[B]` on the device until they are read."""

    def __init__(self, sampled: Sampled) -> None:
        self._sampled = sampled

    def read(self) -> list[int]:
        tokens: list[int] = self._sampled.tokens.tolist()
        return tokens

    def probabilities(self) -> dict[int, Probability]:
        """By index of the row, for the rows whose request has `n_probs`."""
        return {
            told.row: Probability(
                float(told.value.item()),
                list(
                    zip(told.top_tokens.tolist(), told.top_values.tolist(), strict=True)
                ),
            )
            for told in self._sampled.probabilities
        }


@dataclass(frozen=True, slots=True)
class _Mark:
    """What trimming a slot's own caches cannot bring back, as after `n` tokens."""

    n: int
    state: list[Any]


@dataclass(frozen=True, slots=True)
class SavedText:
    """The first `n` tokens of a slot outside the pool: what `export` gives."""

    n: int
    layers: list[tuple[list[mx.array], list[mx.array]]]
    """Keys and values of each layer of the pool, as they are stored."""
    own: list[Any]
    """The slot's own caches."""

    @property
    def nbytes(self) -> int:
        arrays = [a for layer in self.layers for side in layer for a in side]
        return sum(int(a.nbytes) for a in arrays) + slot_caches.nbytes(self.own)


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
        together: bool = True,
        grain: int = 1,
    ) -> None:
        """`batched` and `together` are what the probe has found of this model.

        `grain` is that of the device's pacing.
        """
        self.batched = batched
        self.pipelined = pipelined
        self.reads_together = together and batched and map_.all_pooled
        self._model = model
        self._grain = grain
        self._map = map_
        self._sampler = sampler
        self._pool = Pool(map_.shapes, cells, cell_major=cell_major)
        self._recorded = RecordedStep(model, self._pool) if map_.all_pooled else None
        self._head = Head(model)
        # What the slots own: the model's cache list, its pooled entries unused.
        self._own: list[list[Any]] = [[] for _ in range(slots)]
        self._marks: list[_Mark | None] = [None] * slots
        self._stepped: set[int] = set()
        # The token that each slot sampled last, so that the next step need not wait
        # for the host to see it.
        self._last = mx.zeros((slots,), dtype=mx.int32)

    @property
    def kv_bytes(self) -> int:
        """Bytes allocated for the pool and for the caches that slots own."""
        marks = [mark.state for mark in self._marks if mark is not None]
        own = sum(map(slot_caches.nbytes, [*self._own, *marks]))
        return self._pool.nbytes + own

    @property
    def cells(self) -> int:
        """Cells of the pool."""
        return self._pool.cells

    @property
    def layer_bytes(self) -> int:
        """Bytes of the largest layer of the pool: what a copied write would cost."""
        return max((layer.nbytes for layer in self._pool.layers), default=0)

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        """Read a chunk of a prompt and wait until it is in the cells."""
        wait_for_queue()
        filled = self._filled(start, position, len(tokens))
        read = [*tokens, *[0] * (filled - len(tokens))]
        caches = self._single(slot, start, position, pace(), len(tokens))
        self._model(mx.array([read]), cache=caches)
        slot_caches.let_go(self._own[slot])
        # The logits of a prompt are not wanted. A look at one written cell of each
        # layer makes the device do the rest, and names no pool array.
        last = start + position + len(tokens) - 1
        pending = [layer.look(last) for layer in self._pool.layers]
        mx.eval(pending, slot_caches.arrays(self._own[slot]))

    def prefill_together(self, parts: Sequence[Part]) -> None:
        """Read chunks of several prompts and wait until all are in the cells."""
        wait_for_queue()
        wide = prompts.width([len(part.tokens) for part in parts], self._grain)
        read = [[*part.tokens, *[0] * (wide - len(part.tokens))] for part in parts]
        offsets = mx.array([part.position for part in parts])
        paced, filled = pace(), self._grain > 1
        caches = [
            ChunkRows(layer, parts, offsets, paced, filled=filled)
            for layer in self._pool.layers
        ]
        self._model(mx.array(read), cache=caches)
        last = parts[0].start + parts[0].position
        mx.eval([layer.look(last) for layer in self._pool.layers])

    def _filled(self, start: int, position: int, n: int) -> int:
        """Tokens of a chunk of `n` when it is filled up to a multiple of the grain.

        Where the pool ends before that, or the model may not be given tokens that are
        no part of the text, a chunk stays as it is.
        """
        end = prompts.filled(position + n, self._grain)
        fits = self.reads_together and start + end <= self._pool.cells
        return end - position if fits else n

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Step:
        """Queue one token of every row, and a chunk to be read with them."""
        slots = mx.array([row.slot for row in rows])
        read = self._inputs(rows, slots)
        logits = self.logits(rows, read, part)
        sampled = self._sampler.sample(logits, rows, read)
        self._last[slots] = sampled.tokens
        mx.async_eval(sampled.tokens, self._last, sampled.arrays())
        return Step(sampled)

    def move(self, moves: Sequence[Move]) -> None:
        wait_for_queue()
        self._pool.move(moves)

    def reusable(self, slot: int, n: int) -> int:
        """How many of the first `n` tokens the slot can go back to."""
        if self._map.all_pooled or slot_caches.can_trim(self._own[slot]):
            return n
        mark = self._marks[slot]
        return mark.n if mark is not None and mark.n <= n else 0

    def rewind(self, slot: int, n: int) -> None:
        """Go back to `n` tokens, which `reusable` has promised."""
        if self._map.all_pooled:
            return
        self._own[slot] = self._own_at(slot, n)
        mark = self._marks[slot]
        if mark is not None and mark.n > n:
            # Another text follows: later on nothing would tell the two apart.
            self._marks[slot] = None

    def forget(self, slot: int) -> None:
        """Let go of what the slot keeps outside the pool."""
        self._own[slot] = []
        self._marks[slot] = None

    def mark(self, slot: int, n: int) -> None:
        """Remember the state after `n` tokens, where it cannot be had by trimming."""
        if not self._map.all_pooled:
            self._marks[slot] = _Mark(n, slot_caches.state(self._own[slot]))

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        """Give `target` the first `n` tokens of `source`, which `reusable` promised."""
        self.move([Move(target, source_start, target_start, n)])
        if not self._map.all_pooled:
            self._own[target] = self._own_at(source, n)
            self._marks[target] = None
            self.mark(target, n)

    def export(self, slot: int, start: int, n: int) -> SavedText:
        """Copy the first `n` tokens out of the pool; `reusable` has promised them."""
        layers = [layer.raw(start, start + n) for layer in self._pool.layers]
        own = [] if self._map.all_pooled else self._own_at(slot, n)
        slot_caches.let_go(own)
        mx.eval(slot_caches.arrays(own))
        return SavedText(n, layers, own)

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        """Put an exported text into cells `start` and on."""
        assert isinstance(saved, SavedText)
        wait_for_queue()
        for layer, (keys, values) in zip(self._pool.layers, saved.layers, strict=True):
            layer.put_raw(start, keys, values)
        if not self._map.all_pooled:
            self._own[slot] = slot_caches.snapshot(saved.own)
            self._marks[slot] = None
            self.mark(slot, saved.n)

    def _own_at(self, slot: int, n: int) -> list[Any]:
        """A copy of the slot's own caches as they were after `n` tokens."""
        own = slot_caches.snapshot(self._own[slot])
        mark = self._marks[slot]
        if mark is not None and not slot_caches.can_trim(own):
            own = slot_caches.with_state(own, mark.state)
        slot_caches.trim_to(own, n)
        return own

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

    @property
    def takes_along(self) -> bool:
        """Whether a step can take a chunk along, and is the faster for it.

        On a CPU reading the weights is most of a step. A GPU multiplies with them at
        the speed of its memory, and has a step of its own (recorded.py).
        """
        return self.reads_together and mx.default_device() == mx.cpu

    def logits(
        self, rows: Sequence[Row], read: mx.array, part: Part | None = None
    ) -> mx.array:
        """Logits `[B, V]` after the rows have read `read [B]`.

        With the tokens of `part`, whose logits nobody wants; see `takes_along`.
        """
        if part is not None:
            return self._mixed(rows, read, part)
        if not self.batched:
            return self._one_by_one(rows, read)
        if self._recorded is not None and self._recorded.possible:
            logits = self._recorded(*_places(rows), read)
            if logits is not None:
                return logits
        return self._together(rows, read)

    def _together(self, rows: Sequence[Row], read: mx.array) -> mx.array:
        """Logits `[B, V]` of one batch."""
        wait_for_queue()
        self._part({row.slot for row in rows})
        where = StepRows(*_places(rows))
        layers = iter(self._pool.layers)
        own = [self._owned(row.slot, row.position) for row in rows]
        caches = [
            layer_rows(
                layout,
                [caches[index] for caches in own],
                lambda: PoolRows(next(layers), where),
            )
            for index, layout in enumerate(self._map.layouts)
        ]
        logits: mx.array = self._model(read[:, None], cache=caches)
        return logits[:, -1]

    def _mixed(self, rows: Sequence[Row], read: mx.array, part: Part) -> mx.array:
        """Logits `[B, V]` of one batch with the tokens of a chunk."""
        wait_for_queue()
        where = StepRows(*_places(rows))
        caches = [MixedRows(layer, part, where) for layer in self._pool.layers]
        chunk = mx.array(part.tokens, dtype=mx.int32)
        tokens = mx.concatenate([chunk, read.astype(mx.int32)])
        with self._head.last(len(rows)):
            logits: mx.array = self._model(tokens[:, None], cache=caches)
        return logits[-len(rows) :, -1]

    def _part(self, slots: set[int]) -> None:
        """Give slots that have left the batch recurrent state of their own.

        After a step it is a view of all rows' state, which would stay in memory.
        """
        left = [self._own[slot] for slot in self._stepped - slots]
        self._stepped = set() if self._map.all_pooled else slots
        for own in left:
            slot_caches.let_go(own)
            mx.async_eval(slot_caches.arrays(own))

    def _one_by_one(self, rows: Sequence[Row], read: mx.array) -> mx.array:
        """Logits `[B, V]`, each row run alone."""
        wait_for_queue()
        out = []
        for index, row in enumerate(rows):
            caches = self._single(row.slot, row.start, row.position)
            out.append(self._model(read[index : index + 1][None], cache=caches)[:, -1])
        return mx.concatenate(out)

    def _single(
        self,
        slot: int,
        start: int,
        position: int,
        pace: Pace | None = None,
        n: int | None = None,
    ) -> list[Any]:
        """The cache list of one slot: spans of the pool and caches of its own."""
        layers = iter(self._pool.layers)
        return [
            slot_caches.join(
                layout, own, lambda: SpanCache(next(layers), start, position, pace, n)
            )
            for layout, own in zip(
                self._map.layouts, self._owned(slot, position), strict=True
            )
        ]

    def _owned(self, slot: int, position: int) -> list[Any]:
        """The slot's own caches; new ones when a text begins."""
        if self._map.all_pooled:
            return [None] * len(self._map.layouts)
        if position == 0:
            self._own[slot] = make_prompt_cache(self._model)
            self._marks[slot] = None
        return self._own[slot]


def _places(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """The first cells of the rows' spans, and their positions."""
    return [row.start for row in rows], [row.position for row in rows]
