"""What a model's own caches tell: which layers go into the pool, and what they cost.

Plain KV caches grow with the text and move into the pool. Everything else (recurrent
state, sliding windows) stays as mlx-lm makes it, one for each slot. What mlx-lm's
caches take beyond the tokens they hold is counted or cut off here, so that the plan's
bytes stay an upper bound for every family.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxceld.engine.pool import LayerShape, Storage


@dataclass(frozen=True, slots=True)
class Layout:
    """One entry of a model's cache list: in the pool, a slot's own, or a list."""

    shape: LayerShape | None = None
    """The layer of the pool; None when the entry is the slot's own or a list."""
    parts: tuple[Layout, ...] = ()

    def leaves(self) -> Iterator[LayerShape | None]:
        """The shapes of what is pooled, None for what is not, in order."""
        if self.parts:
            for part in self.parts:
                yield from part.leaves()
        else:
            yield self.shape

    def map(self, change: Callable[[LayerShape], LayerShape | None]) -> Layout:
        """The same layout with every pooled shape changed."""
        if self.parts:
            return Layout(parts=tuple(part.map(change) for part in self.parts))
        return self if self.shape is None else Layout(change(self.shape))


@dataclass(frozen=True, slots=True)
class CacheMap:
    """The caches of one model, measured; sizes in bytes."""

    layouts: tuple[Layout, ...]
    """The model's cache list."""
    own_bytes_per_token: int = 0
    """Of caches that are the slot's own and grow with its text."""
    fixed_bytes_per_slot: int = 0

    @property
    def shapes(self) -> list[LayerShape]:
        """The layers of the pool, in the model's order."""
        return [s for layout in self.layouts for s in layout.leaves() if s is not None]

    @property
    def bytes_per_token(self) -> int:
        pooled = sum(shape.bytes_per_token for shape in self.shapes)
        return self.own_bytes_per_token + pooled

    @property
    def all_pooled(self) -> bool:
        leaves = [leaf for layout in self.layouts for leaf in layout.leaves()]
        return None not in leaves

    def unpooled(self) -> CacheMap:
        """The same model with no layer in the pool."""
        spare = sum(map(_spare, self.shapes))
        return CacheMap(
            tuple(layout.map(lambda _: None) for layout in self.layouts),
            self.bytes_per_token,
            self.fixed_bytes_per_slot + spare,
        )

    def stored_as(self, keys: str, values: str) -> CacheMap:
        """The same model with its pool in other cache types; see `Storage.of`."""
        return CacheMap(
            tuple(
                layout.map(lambda shape: shape.stored_as(keys, values))
                for layout in self.layouts
            ),
            self.own_bytes_per_token,
            self.fixed_bytes_per_slot,
        )


def measure(model: Any, token: int = 0) -> CacheMap:
    """Run one token through the model and look at the caches that it leaves."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([[token]]), cache=caches))
    own = fixed = 0
    for cache in _flat(caches):
        if type(cache) is not KVCache:
            grows, stays = _cost(cache)
            own += grows
            fixed += stays
    return CacheMap(tuple(map(_layout, caches)), own, fixed)


def join(layout: Layout, own: Any, pooled: Callable[[], Any]) -> Any:
    """One slot's cache for one entry of the list.

    `own` is the entry as the slot keeps it (its pooled parts are unused), `pooled`
    makes the view of the next layer of the pool.
    """
    if layout.shape is not None:
        return pooled()
    if not layout.parts:
        return own
    parts = zip(layout.parts, own.caches, strict=True)
    return CacheList(*(join(part, cache, pooled) for part, cache in parts))


def nbytes(caches: Iterable[Any]) -> int:
    """Bytes that caches of mlx-lm hold now."""
    return sum(int(getattr(cache, "nbytes", 0) or 0) for cache in _flat(caches))


def arrays(caches: Iterable[Any]) -> list[mx.array]:
    """What has to be evaluated so that nothing of the caches is pending."""
    found: list[mx.array] = []
    for cache in _flat(caches):
        if isinstance(cache, ArraysCache):
            found += [array for array in cache.cache if array is not None]
        elif getattr(cache, "keys", None) is not None:
            found += [cache.keys, cache.values]
    return found


def let_go(caches: Iterable[Any]) -> None:
    """Drop what slots' caches hold in memory beyond their state.

    A sliding window stays longer than its size by almost the chunk until its next
    update; recurrent state may be a view of a whole chunk's activations, or of the
    state of all rows of a step. What is still needed is the same afterwards.
    """
    for cache in _flat(caches):
        # `contiguous` copies only what lies in a larger buffer.
        if isinstance(cache, ArraysCache):
            for index, array in enumerate(cache.cache):
                if array is not None:
                    cache[index] = mx.contiguous(array)
        elif isinstance(cache, ChunkedKVCache) and cache.keys is not None:
            cache.maybe_trim_front()
            cache.keys = mx.contiguous(cache.keys)
            cache.values = mx.contiguous(cache.values)
        elif isinstance(cache, RotatingKVCache) and cache.keys is not None:
            keys, values, offset, keep, size, _ = cache.state
            extra = keys.shape[2] - size
            if extra > 0:
                keys = _without(keys, keep, extra)
                values = _without(values, keep, extra)
                cache.state = keys, values, offset, keep, size, size


def snapshot(caches: Sequence[Any]) -> list[Any]:
    """Copies that later steps do not change.

    The arrays are shared until one side writes: MLX copies then.
    """
    return [_copy(cache) for cache in caches]


def can_trim(caches: Iterable[Any]) -> bool:
    """Whether the caches can go back to any earlier token.

    Windows can until they drop their first token.
    """
    return all(map(_can_trim, _flat(caches)))


def trim_to(caches: Iterable[Any], n: int) -> None:
    """Let caches that are further go back to `n` tokens, and hold no room for more."""
    for cache in _flat(caches):
        if isinstance(cache, ArraysCache):
            continue
        cache.trim(max(0, cache.offset - n))
        if type(cache) is KVCache and cache.keys is not None:
            cache.keys = mx.contiguous(cache.keys[..., : cache.offset, :])
            cache.values = mx.contiguous(cache.values[..., : cache.offset, :])


def state(caches: Iterable[Any]) -> list[Any]:
    """Copies of what may not be trimmable later on, None for what always is."""
    return [_state(cache) for cache in caches]


def with_state(caches: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
    """The caches with copies of what `state` has kept in its place."""
    return [_with(cache, old) for cache, old in zip(caches, kept, strict=True)]


def _can_trim(cache: Any) -> bool:
    if isinstance(cache, RotatingKVCache):
        return bool(cache.offset < cache.max_size)
    if isinstance(cache, ChunkedKVCache):
        return cache.start_position == 0
    return type(cache) is KVCache


def _state(cache: Any) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*map(_state, cache.caches))
    return None if type(cache) is KVCache else _copy(cache)


def _with(cache: Any, kept: Any) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*map(_with, cache.caches, kept.caches))
    return cache if kept is None else _copy(kept)


def _copy(cache: Any) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*map(_copy, cache.caches))
    twin = copy.copy(cache)
    if isinstance(cache, ArraysCache):
        twin.cache = list(cache.cache)
    elif getattr(cache, "keys", None) is not None:
        # Handles of their own: a write through one leaves the other as it was.
        twin.keys, twin.values = mx.array(cache.keys), mx.array(cache.values)
    return twin


def _flat(caches: Iterable[Any]) -> Iterator[Any]:
    for cache in caches:
        if isinstance(cache, CacheList):
            yield from _flat(cache.caches)
        elif cache is not None:
            yield cache


def _layout(cache: Any) -> Layout:
    if isinstance(cache, CacheList):
        return Layout(parts=tuple(map(_layout, cache.caches)))
    return Layout(_shape(cache) if type(cache) is KVCache else None)


def _without(array: mx.array, keep: int, extra: int) -> mx.array:
    """A copy without the `extra` tokens after the first `keep`: no view holds them."""
    return mx.concatenate([array[..., :keep, :], array[..., keep + extra :, :]], axis=2)


def _shape(cache: Any) -> LayerShape:
    _, heads, _, key_dim = cache.keys.shape
    dtype = cache.keys.dtype
    return LayerShape(
        heads, Storage(key_dim, dtype), Storage(cache.values.shape[3], dtype)
    )


def _spare(shape: LayerShape) -> int:
    """The most bytes that mlx-lm's own cache of this shape takes for no token."""
    return (KVCache.step - 1) * shape.bytes_per_token


def _cost(cache: Any) -> tuple[int, int]:
    """Bytes per token of text, and bytes whatever its length, of a slot's own cache.

    State is counted twice: once as it runs, once as it was at the end of the prompt,
    which is where a later request may go on from.
    """
    if getattr(cache, "keys", None) is not None:
        shape = _shape(cache)
        if isinstance(cache, RotatingKVCache):
            return 0, 2 * shape.bytes_per_token * cache.max_size
        if isinstance(cache, ChunkedKVCache):
            # It grows by whole steps, also when it has just dropped a token.
            return 0, 2 * shape.bytes_per_token * (cache.chunk_size + cache.step)
        return shape.bytes_per_token, _spare(shape)
    return 0, 2 * int(getattr(cache, "nbytes", 0) or 0)
