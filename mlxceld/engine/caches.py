"""What a model's own caches tell: which layers go into the pool, and what they cost.

Plain KV caches grow with the text and move into the pool. Everything else (recurrent
state, sliding windows, lists of caches) stays as mlx-lm makes it, one for each slot.
What mlx-lm's caches take beyond the tokens they hold is counted or cut off here, so
that the plan's bytes stay an upper bound for every family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxceld.engine.pool import LayerShape


@dataclass(frozen=True, slots=True)
class CacheMap:
    """The caches of one model, measured; sizes in bytes."""

    pooled: dict[int, LayerShape]
    """Index in the model's cache list, and shape, of each layer of the pool."""
    count: int
    """Length of the model's cache list."""
    bytes_per_token: int
    fixed_bytes_per_slot: int

    @property
    def all_pooled(self) -> bool:
        return len(self.pooled) == self.count

    def unpooled(self) -> CacheMap:
        """The same model with no layer in the pool."""
        spare = sum(map(_spare, self.pooled.values()))
        return CacheMap(
            {}, self.count, self.bytes_per_token, self.fixed_bytes_per_slot + spare
        )


def measure(model: Any, token: int = 0) -> CacheMap:
    """Run one token through the model and look at the caches that it leaves."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([[token]]), cache=caches))
    pooled: dict[int, LayerShape] = {}
    per_token = fixed = 0
    for index, cache in enumerate(caches):
        if type(cache) is KVCache:
            pooled[index] = _shape(cache)
            per_token += pooled[index].bytes_per_token
            continue
        grows, stays = _cost(cache)
        per_token += grows
        fixed += stays
    return CacheMap(pooled, len(caches), per_token, fixed)


def nbytes(caches: Sequence[Any]) -> int:
    """Bytes that caches of mlx-lm hold now."""
    return sum(int(getattr(cache, "nbytes", 0) or 0) for cache in caches)


def arrays(caches: Sequence[Any]) -> list[Any]:
    """What has to be evaluated so that nothing of the caches is pending."""
    return [cache.state for cache in caches if not _empty(cache)]


def let_go(caches: Sequence[Any]) -> None:
    """Drop what a prompt chunk has left in a slot's caches beyond their state.

    A sliding window stays longer than its size by almost the chunk until its next
    update; recurrent state may be a view of the whole chunk's activations. What is
    still needed is the same afterwards.
    """
    for cache in caches:
        if isinstance(cache, CacheList):
            let_go(cache.caches)
        elif isinstance(cache, ArraysCache):
            for index, array in enumerate(cache.cache):
                if array is not None:
                    # Copies only what lies in a larger buffer.
                    cache[index] = mx.contiguous(array)
        elif isinstance(cache, RotatingKVCache) and not _empty(cache):
            keys, values, offset, keep, size, _ = cache.state
            extra = keys.shape[2] - size
            if extra > 0:
                keys = _without(keys, keep, extra)
                values = _without(values, keep, extra)
                cache.state = keys, values, offset, keep, size, size


def _without(array: mx.array, keep: int, extra: int) -> mx.array:
    """A copy without the `extra` tokens after the first `keep`: no view holds them."""
    return mx.concatenate([array[..., :keep, :], array[..., keep + extra :, :]], axis=2)


def _empty(cache: Any) -> bool:
    return isinstance(cache, KVCache | RotatingKVCache) and cache.keys is None


def _shape(cache: KVCache) -> LayerShape:
    _, heads, _, key_dim = cache.keys.shape
    return LayerShape(heads, key_dim, cache.values.shape[3], cache.keys.dtype)


def _spare(shape: LayerShape) -> int:
    """The most bytes that mlx-lm's own cache of this shape takes for no token."""
    return (KVCache.step - 1) * shape.bytes_per_token


def _cost(cache: Any) -> tuple[int, int]:
    """Bytes per token of text, and bytes whatever its length, of one cache."""
    if isinstance(cache, CacheList):
        parts = [_cost(part) for part in cache.caches]
        return sum(p for p, _ in parts), sum(f for _, f in parts)
    if getattr(cache, "keys", None) is not None:
        shape = _shape(cache)
        if isinstance(cache, RotatingKVCache):
            return 0, shape.bytes_per_token * cache.max_size
        return shape.bytes_per_token, _spare(shape)
    return 0, int(getattr(cache, "nbytes", 0) or 0)
