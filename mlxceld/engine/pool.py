"""The KV pool: one array of keys and one of values per layer, and views of its cells.

A write must happen in place: the arrays have one owner, views are made inside a step
and die with it, and no step names the arrays themselves when it is queued. Otherwise
MLX copies the whole array at the next write.

Only this file knows how the cells lie in memory. Head-major `[heads, cells, dim]` is
right wherever it works: a row's view needs no copy. mlx on CUDA has computed wrong
values in its one-query attention kernel when such a view starts past cell 0; there the
layout is cell-major `[cells, heads, dim]`.

Quantised keys and values are unpacked for a prompt chunk and forgotten after it: that
costs the plain bytes of one layer and one slot for a moment, and lets the fused kernel
and models that multiply the keys themselves work as ever. A decode step reads them as
they are.

On CUDA the pool holds numbers alone. Chunks are filled up there (`Pacing.grain`), and
see with weight 0 what lies in the cells behind their text, of another slot perhaps; 0
times infinity is no number, so one request that overflows would spoil others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from mlxceld.cachetypes import BITS, GROUP
from mlxceld.engine.attention import Held, Packed, plain
from mlxceld.engine.pace import Pace
from mlxceld.engine.spans import Move

_PLAIN = {"f16": mx.float16, "bf16": mx.bfloat16, "f32": mx.float32}


def wait_for_queue() -> None:
    """Wait until nothing that is queued holds the pool, so that writes stay in place.

    On a GPU MLX keeps what a queued operation reads until that is done and put away,
    which is a little after its result is there, and copies an array that is kept when
    it is written to.
    """
    if mx.default_device() == mx.gpu:
        mx.synchronize()


@dataclass(frozen=True, slots=True)
class Storage:
    """How one of the two, keys or values, of one layer is stored."""

    dim: int
    dtype: mx.Dtype
    """What the model computes with; of scales and biases when quantised."""
    bits: int = 0
    """Bits of a quantised value; 0 for plain values of `dtype`."""

    @classmethod
    def of(cls, dim: int, dtype: mx.Dtype, kind: str) -> Storage:
        """`kind` is llama-server's name of a cache type, or auto for `dtype`.

        Raises ValueError when `dim` cannot be quantised in whole groups.
        """
        if kind in BITS:
            if dim % GROUP:
                raise ValueError(
                    f"{kind} needs heads of a multiple of {GROUP}, not of {dim} values"
                )
            return cls(dim, dtype, BITS[kind])
        return cls(dim, _PLAIN.get(kind, dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of one token and head."""
        if not self.bits:
            return self.dim * self.dtype.size
        return self.dim * self.bits // 8 + 2 * self.dim // GROUP * self.dtype.size


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one layer and one token."""

    heads: int
    keys: Storage
    values: Storage

    @property
    def bytes_per_token(self) -> int:
        return self.heads * (self.keys.nbytes + self.values.nbytes)

    def stored_as(self, key_kind: str, value_kind: str) -> LayerShape:
        """The same layer with other cache types; see `Storage.of`."""
        return replace(
            self,
            keys=Storage.of(self.keys.dim, self.keys.dtype, key_kind),
            values=Storage.of(self.values.dim, self.values.dtype, value_kind),
        )


@partial(mx.compile, shapeless=True)
def _numbers(new: mx.array) -> mx.array:
    """The same with zeros for what is no number, or no finite one."""
    return mx.where(mx.abs(new) < math.inf, new, mx.zeros_like(new))


class _Cells:
    """One array over all cells, in the layout of this device."""

    def __init__(
        self, heads: int, cells: int, dim: int, dtype: mx.Dtype, *, cell_major: bool
    ) -> None:
        self._cell_major = cell_major
        lead = (cells, heads) if cell_major else (heads, cells)
        self.array = mx.zeros((*lead, dim), dtype=dtype)

    def write_rows(self, cells: mx.array, new: mx.array) -> None:
        if self._cell_major:
            self.array[cells] = new[:, :, 0]
        else:
            self.array[:, cells] = new[:, :, 0].swapaxes(0, 1)

    def write_chunk(self, cell: int, new: mx.array) -> None:
        end = cell + new.shape[2]
        if self._cell_major:
            self.array[cell:end] = new[0].swapaxes(0, 1)
        else:
            self.array[:, cell:end] = new[0]

    def view(self, start: int, end: int) -> mx.array:
        if self._cell_major:
            return self.array[start:end].swapaxes(0, 1)[None]
        return self.array[None, :, start:end]


class _Side:
    """The keys, or the values, of one layer."""

    def __init__(
        self, heads: int, cells: int, storage: Storage, *, cell_major: bool
    ) -> None:
        self._storage = storage
        self._numbers_only = cell_major
        dims = [(storage.dim, storage.dtype)]
        if storage.bits:
            codes = storage.dim * storage.bits // 32
            scales = (storage.dim // GROUP, storage.dtype)
            dims = [(codes, mx.uint32), scales, scales]
        self.cells = [
            _Cells(heads, cells, dim, dtype, cell_major=cell_major)
            for dim, dtype in dims
        ]

    def exact(self, new: mx.array) -> bool:
        """Whether such values are stored as they are."""
        return not self._storage.bits and new.dtype == self._storage.dtype

    def _stored(self, new: mx.array) -> Sequence[mx.array]:
        storage = self._storage
        new = new.astype(storage.dtype)
        if self._numbers_only:
            new = _numbers(new)
        if storage.bits:
            packed: Sequence[mx.array] = mx.quantize(
                new, group_size=GROUP, bits=storage.bits
            )
            return packed
        return (new,)

    def write_rows(self, cells: mx.array, new: mx.array) -> None:
        for part, stored in zip(self.cells, self._stored(new), strict=True):
            part.write_rows(cells, stored)

    def write_chunk(self, cell: int, new: mx.array) -> None:
        for part, stored in zip(self.cells, self._stored(new), strict=True):
            part.write_chunk(cell, stored)

    def view(self, start: int, end: int) -> Held:
        if not self._storage.bits:
            return self.cells[0].view(start, end)
        codes, scales, offsets = (part.view(start, end) for part in self.cells)
        return Packed((codes, scales, offsets), self._storage.bits, GROUP)

    def raw(self, start: int, end: int) -> list[mx.array]:
        """Copies of the cells as they are stored, which no later write can reach."""
        return [mx.array(part.view(start, end) * 1) for part in self.cells]

    def put_raw(self, cell: int, stored: Sequence[mx.array]) -> None:
        for part, new in zip(self.cells, stored, strict=True):
            part.write_chunk(cell, new)


class Layer:
    """Keys and values of one layer for all slots."""

    def __init__(self, shape: LayerShape, cells: int, *, cell_major: bool) -> None:
        self._keys = _Side(shape.heads, cells, shape.keys, cell_major=cell_major)
        self._values = _Side(shape.heads, cells, shape.values, cell_major=cell_major)
        self._plain = cell_major and not (shape.keys.bits or shape.values.bits)
        self.cells = cells

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def arrays(self) -> list[mx.array]:
        """The arrays themselves, to be evaluated before anything is written."""
        return [part.array for part in (*self._keys.cells, *self._values.cells)]

    def write_rows(self, cells: mx.array, keys: mx.array, values: mx.array) -> None:
        """One token of each row: `cells [B]`, keys and values `[B, heads, 1, dim]`."""
        self._keys.write_rows(cells, keys)
        self._values.write_rows(cells, values)

    def write_chunk(self, cell: int, keys: mx.array, values: mx.array) -> None:
        """Consecutive tokens of one slot from `cell` on; `[1, heads, L, dim]`."""
        self._keys.write_chunk(cell, keys)
        self._values.write_chunk(cell, values)

    def exact(self, keys: mx.array, values: mx.array) -> bool:
        """Whether such keys and values come back as they were written."""
        return self._keys.exact(keys) and self._values.exact(values)

    def view(self, start: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values of the cells `start` to `end`, `[1, heads, cells, dim]`.

        Quantised ones are unpacked.
        """
        keys, values = self.held(start, end)
        return plain(keys), plain(values)

    def held(self, start: int, end: int) -> tuple[Held, Held]:
        """The same as `view`, quantised ones as they are."""
        return self._keys.view(start, end), self._values.view(start, end)

    def whole(self) -> tuple[mx.array, mx.array] | None:
        """All keys and values `[cells, heads, dim]`; None where they lie otherwise.

        For a kernel that finds the rows' spans itself. As with views, whatever is made
        from these has to be done before the next write.
        """
        if not self._plain:
            return None
        return self._keys.cells[0].array, self._values.cells[0].array

    def raw(self, start: int, end: int) -> tuple[list[mx.array], list[mx.array]]:
        """Finished copies of the cells as they are stored: keys, values."""
        copies = self._keys.raw(start, end), self._values.raw(start, end)
        mx.eval(copies)
        wait_for_queue()
        return copies

    def put_raw(
        self, cell: int, keys: Sequence[mx.array], values: Sequence[mx.array]
    ) -> None:
        """Write what `raw` gave, from `cell` on, and wait for it."""
        self._keys.put_raw(cell, keys)
        self._values.put_raw(cell, values)
        self.settle(cell)

    def move(self, source: int, target: int, n: int) -> None:
        """Copy `n` cells; the ranges may overlap."""
        # Real copies, finished before the write: a view alive during the write would
        # make MLX copy the whole layer.
        self.put_raw(target, *self.raw(source, source + n))

    def look(self, cell: int) -> list[mx.array]:
        """Views of one cell; evaluating them waits for all writes to the layer."""
        sides = (*self._keys.cells, *self._values.cells)
        return [part.view(cell, cell + 1) for part in sides]

    def settle(self, cell: int) -> None:
        """Wait for all writes by looking at one cell, which leaves nothing alive."""
        mx.eval(self.look(cell))


class SpanCache:
    """One layer of one slot, in the shape of mlx-lm's KVCache: for prompt chunks."""

    def __init__(
        self,
        layer: Layer,
        start: int,
        position: int,
        pace: Pace | None = None,
        n: int | None = None,
    ) -> None:
        """`n` of the tokens to come are the chunk's, None for all.

        The rest fills it up and is not written; the chunk's tokens do not see it.
        """
        self.offset = position
        self._layer = layer
        self._start = start
        self._pace = pace
        self._n = n

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        if self._pace is not None:
            self._pace.step(keys, values)
        written = keys[:, :, : self._n], values[:, :, : self._n]
        self._layer.write_chunk(self._start + self.offset, *written)
        self.offset += keys.shape[2]
        self._dtypes = keys.dtype, values.dtype
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """All of the text's, for layers that share what another one has written."""
        keys, values = self._layer.view(self._start, self._start + self.offset)
        key_dtype, value_dtype = self._dtypes
        return keys.astype(key_dtype), values.astype(value_dtype)

    def make_mask(self, n: int, **wanted: Any) -> Any:
        return create_attention_mask(n, offset=self.offset, **wanted)


class Pool:
    """All layers of the pool."""

    def __init__(
        self, shapes: Sequence[LayerShape], cells: int, *, cell_major: bool
    ) -> None:
        """Allocates everything at once; raises RuntimeError when memory is short."""
        self.cells = cells
        self.layers = [Layer(s, cells, cell_major=cell_major) for s in shapes]
        for layer in self.layers:
            mx.eval(layer.arrays())

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def move(self, moves: Sequence[Move]) -> None:
        """Carry out moves in order, layer by layer: one layer's copy at a time."""
        for layer in self.layers:
            for move in moves:
                layer.move(move.source, move.target, move.n)
