"""What a model's own caches tell about the pool and the fixed cost of a slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxceld.engine import caches
from mlxceld.engine.caches import Layout
from mlxceld.engine.pool import LayerShape, Storage

FLOAT = 4
FLOATS = Storage(16, mx.float32)
SHAPE = LayerShape(2, FLOATS, FLOATS)
POOLED, OWN = Layout(SHAPE), Layout()


def test_plain_kv_layers_all_go_into_the_pool(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path).map
    assert found.layouts == (POOLED, POOLED, POOLED)
    assert found.shapes == [SHAPE, SHAPE, SHAPE]
    assert found.all_pooled
    # Three layers, two heads, keys and values of 16 floats.
    assert found.bytes_per_token == 3 * 2 * (16 + 16) * FLOAT
    assert found.fixed_bytes_per_slot == 0


def test_half_precision_costs_half(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path)
    loaded.model.set_dtype(mx.float16)
    assert caches.measure(loaded.model).bytes_per_token == 3 * 2 * (16 + 16) * 2


def test_latent_attention_is_measured_as_it_is_cached(tmp_path: Path) -> None:
    """Keys are the latent of 16, values the rotary part of 8, for one shared head."""
    found = real.tiny_model(tmp_path, "deepseek_v3", **FAMILIES["deepseek_v3"]).map
    assert found.shapes[0] == LayerShape(1, FLOATS, Storage(8, mx.float32))
    assert found.bytes_per_token == 3 * (16 + 8) * FLOAT


def test_a_sliding_window_is_a_fixed_cost_and_stays_outside(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path, "gemma3_text", **FAMILIES["gemma3_text"]).map
    assert found.layouts == (OWN, OWN, POOLED)
    assert not found.all_pooled
    assert found.bytes_per_token == 2 * (16 + 16) * FLOAT
    # Two layers that see 8 tokens each, and once more as they were at a prompt's end.
    assert found.fixed_bytes_per_slot == 2 * 2 * 8 * (2 * (16 + 16) * FLOAT)


def test_recurrent_state_is_a_fixed_cost(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"]).map
    assert found.layouts == (OWN, OWN, OWN)
    assert found.bytes_per_token == 0
    # Inner width 4 heads x 32; the convolution keeps 3 steps of it and of two groups'
    # states of 8, the recurrence a state of 8 for each of its channels.
    convolution, recurrence = 3 * (4 * 32 + 2 * 8), 4 * 32 * 8
    # As it runs, and as it was at a prompt's end.
    assert found.fixed_bytes_per_slot == 2 * 3 * (convolution + recurrence) * FLOAT


def test_a_hybrid_pools_its_attention_layers_alone(tmp_path: Path) -> None:
    options = FAMILIES["granitemoehybrid"]
    found = real.tiny_model(tmp_path, "granitemoehybrid", **options).map
    assert found.layouts == (OWN, POOLED, OWN)
    assert found.bytes_per_token == 2 * (16 + 16) * FLOAT
    convolution, recurrence = 3 * (4 * 32 + 2 * 8), 4 * 32 * 8
    assert found.fixed_bytes_per_slot == 2 * 2 * (convolution + recurrence) * FLOAT


def test_a_list_pools_its_plain_part(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path, "falcon_h1", **FAMILIES["falcon_h1"]).map
    assert found.layouts == (Layout(parts=(OWN, POOLED)),) * 3
    assert not found.all_pooled
    assert found.bytes_per_token == 3 * 2 * (16 + 16) * FLOAT
    # Inner width 64, two groups' states of 8; three steps; a state of 8 per channel.
    recurrent = 3 * (3 * (64 + 2 * 8) + 64 * 8) * FLOAT
    assert found.fixed_bytes_per_slot == 2 * recurrent


def test_chunks_of_attention_are_a_fixed_cost(tmp_path: Path) -> None:
    """Chunks of 8 tokens in arrays that grow by 256, twice, in three of four layers."""
    found = real.tiny_model(tmp_path, "llama4", **FAMILIES["llama4"]).map
    assert found.layouts == (OWN, OWN, OWN, POOLED)
    assert found.bytes_per_token == 2 * (16 + 16) * FLOAT
    assert found.fixed_bytes_per_slot == 2 * 3 * (8 + 256) * 2 * (16 + 16) * FLOAT


def test_without_the_pool_every_layer_is_counted_as_it_grows(tmp_path: Path) -> None:
    """mlx-lm's caches grow by 256 tokens: the last step may be empty but for one."""
    found = real.tiny_model(tmp_path).map.unpooled()
    assert found.layouts == (OWN, OWN, OWN)
    assert found.shapes == []
    assert not found.all_pooled
    assert found.bytes_per_token == 768
    assert found.fixed_bytes_per_slot == 255 * 768


def test_bytes_held_are_those_of_the_arrays() -> None:
    """A cache of mlx-lm holds 256 tokens after the first."""
    cache = KVCache()
    assert caches.nbytes([cache]) == 0
    cache.update_and_fetch(mx.zeros((1, 2, 1, 16)), mx.zeros((1, 2, 1, 16)))
    assert caches.nbytes([cache, KVCache()]) == 256 * 2 * (16 + 16) * FLOAT


def test_empty_caches_have_nothing_to_evaluate(tmp_path: Path) -> None:
    loaded = real.tiny_model(tmp_path)
    fresh = make_prompt_cache(loaded.model)
    assert caches.arrays(fresh) == []
    loaded.model(mx.array([[3]]), cache=fresh)
    # Keys and values of three layers.
    assert len(caches.arrays(fresh)) == 6


def test_a_window_is_cut_to_its_size_without_a_change_to_what_comes() -> None:
    """A chunk leaves it longer than the window, for which the plan has no room."""

    def filled() -> RotatingKVCache:
        cache = RotatingKVCache(max_size=8)
        numbers = mx.arange(20.0).reshape(1, 1, 20, 1)
        cache.update_and_fetch(numbers, -numbers)
        return cache

    kept, cut = filled(), filled()
    nested = CacheList(cut)
    caches.let_go([nested, KVCache()])
    assert cut.nbytes == 8 * 2 * FLOAT
    for n in (1, 3, 1, 1):
        new = mx.full((1, 1, n, 1), 50.0 + n)
        found = cut.update_and_fetch(new, -new)
        wanted = kept.update_and_fetch(new, -new)
        assert found[0].flatten().tolist() == wanted[0].flatten().tolist()
        assert found[1].flatten().tolist() == wanted[1].flatten().tolist()


def test_a_window_that_is_not_full_is_left_alone() -> None:
    cache = RotatingKVCache(max_size=8)
    caches.let_go([cache])
    numbers = mx.arange(5.0).reshape(1, 1, 5, 1)
    cache.update_and_fetch(numbers, numbers)
    caches.let_go([cache])
    assert cache.offset == 5
    assert cache.keys.shape[2] == 5


def test_recurrent_state_lets_go_of_the_chunk_it_was_cut_from() -> None:
    """A view keeps the whole array in memory, a state of its own does not."""
    cache = ArraysCache(2)
    before = mx.get_active_memory()
    cache[0] = (mx.zeros((1, 1024, 256)) + 1)[:, -3:]
    mx.eval(caches.arrays([cache]))
    assert mx.get_active_memory() - before >= 1024 * 256 * FLOAT
    caches.let_go([CacheList(cache)])
    mx.eval(caches.arrays([cache]))
    assert mx.get_active_memory() - before <= 2 * 3 * 256 * FLOAT
    assert cache[0].shape == (1, 3, 256)
    assert mx.all(cache[0] == 1).item()
    assert cache[1] is None


def test_the_pool_alone_takes_another_type(tmp_path: Path) -> None:
    """Two windows stay as they are; keys of 32 bytes, values of 16, and scales."""
    options = FAMILIES["gemma3_text"] | {"head_dim": 32}
    plain = real.tiny_model(tmp_path, "gemma3_text", **options).map
    stored = plain.stored_as("q8_0", "q4_0")
    assert stored.bytes_per_token == 2 * ((32 + 2 * FLOAT) + (16 + 2 * FLOAT))
    assert stored.fixed_bytes_per_slot == plain.fixed_bytes_per_slot
    assert plain.stored_as("auto", "auto") == plain


def test_a_list_takes_another_type_inside(tmp_path: Path) -> None:
    options = FAMILIES["falcon_h1"] | {"head_dim": 32}
    stored = real.tiny_model(tmp_path, "falcon_h1", **options).map.stored_as(
        "f16", "f16"
    )
    assert stored.bytes_per_token == 3 * 2 * (32 + 32) * 2


def test_a_type_that_does_not_fit_the_heads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="q8_0 needs heads of a multiple of 32, not"):
        real.tiny_model(tmp_path).map.stored_as("auto", "q8_0")


def _window(n: int) -> RotatingKVCache:
    """A window of 8 tokens that has read `n` of them, one chunk; token t is t."""
    cache = RotatingKVCache(max_size=8)
    numbers = mx.arange(float(n)).reshape(1, 1, n, 1)
    cache.update_and_fetch(numbers, -numbers)
    return cache


def _next(cache: object, number: float) -> list[float]:
    """The keys that the cache shows after one more token."""
    new = mx.full((1, 1, 1, 1), number)
    keys: list[float] = cache.update_and_fetch(new, -new)[0].flatten().tolist()  # type: ignore[attr-defined]
    return sorted(keys)


def test_a_snapshot_keeps_what_it_was_taken_of() -> None:
    window, plain, state = _window(20), KVCache(), ArraysCache(1)
    _next(plain, 1)
    state[0] = mx.ones((1, 3))
    taken = caches.snapshot([window, CacheList(state, plain)])
    caches.let_go([window])
    _next(window, 99)
    _next(plain, 2)
    state[0] = mx.zeros((1, 3))
    assert _next(taken[0], 50) == [13, 14, 15, 16, 17, 18, 19, 50]
    assert taken[1][0][0].tolist() == [[1, 1, 1]]
    assert _next(taken[1][1], 3) == [1, 3]
    assert _next(plain, 4) == [1, 2, 4]


def test_a_window_can_be_trimmed_until_it_drops_a_token() -> None:
    short, full = _window(7), _window(8)
    assert caches.can_trim([short, CacheList(KVCache())])
    assert not caches.can_trim([KVCache(), CacheList(full)])
    caches.trim_to([short], 4)
    assert _next(short, 50) == [0, 1, 2, 3, 50]


def test_recurrent_state_cannot_be_trimmed() -> None:
    assert not caches.can_trim([KVCache(), ArraysCache(1)])
    caches.trim_to([ArraysCache(1)], 3)


def test_a_chunked_cache_can_be_trimmed_until_it_drops_a_token() -> None:
    cache = ChunkedKVCache(8)
    _next(cache, 0)
    assert caches.can_trim([cache])
    for number in range(1, 9):
        _next(cache, number)
    caches.let_go([cache])
    assert not caches.can_trim([cache])
    assert _next(cache, 50) == [1, 2, 3, 4, 5, 6, 7, 8, 50]


def test_kept_state_stands_in_for_what_cannot_be_trimmed_alone() -> None:
    """A plain cache goes on as it is: only the state beside it is an older one."""
    plain, state = KVCache(), ArraysCache(1)
    _next(plain, 1)
    state[0] = mx.ones((1, 3))
    caches_then = [CacheList(state, plain), _window(20)]
    kept = caches.state(caches_then)
    assert caches.nbytes(kept) < caches.nbytes(caches_then)
    _next(plain, 2)
    state[0] = mx.zeros((1, 3))
    back = caches.with_state([CacheList(state, plain), _window(3)], kept)
    assert back[0][0][0].tolist() == [[1, 1, 1]]
    assert back[0][1] is plain
    assert _next(back[1], 50)[-1] == 50
    assert back[1].offset == 21
    caches.trim_to(back[:1], 1)
    assert _next(plain, 3) == [1, 3]
