"""What a model's own caches tell about the pool and the fixed cost of a slot."""

from __future__ import annotations

from pathlib import Path

from tests.engine import real
from tests.engine.families import FAMILIES

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from mlxceld.engine import caches
from mlxceld.engine.pool import LayerShape

FLOAT = 4
SHAPE = LayerShape(heads=2, key_dim=16, value_dim=16, dtype=mx.float32)


def test_plain_kv_layers_all_go_into_the_pool(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path).map
    assert found.pooled == {0: SHAPE, 1: SHAPE, 2: SHAPE}
    assert found.count == 3
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
    assert found.pooled[0] == LayerShape(1, 16, 8, mx.float32)
    assert found.bytes_per_token == 3 * (16 + 8) * FLOAT


def test_a_sliding_window_is_a_fixed_cost_and_stays_outside(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path, "gemma3_text", **FAMILIES["gemma3_text"]).map
    assert found.pooled == {2: SHAPE}
    assert not found.all_pooled
    assert found.bytes_per_token == 2 * (16 + 16) * FLOAT
    # Two layers that see 8 tokens each.
    assert found.fixed_bytes_per_slot == 2 * 8 * (2 * (16 + 16) * FLOAT)


def test_recurrent_state_is_a_fixed_cost(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path, "mamba2", **FAMILIES["mamba2"]).map
    assert found.pooled == {}
    assert found.bytes_per_token == 0
    # Inner width 4 heads x 32; the convolution keeps 3 steps of it and of two groups'
    # states of 8, the recurrence a state of 8 for each of its channels.
    convolution, recurrence = 3 * (4 * 32 + 2 * 8), 4 * 32 * 8
    assert found.fixed_bytes_per_slot == 3 * (convolution + recurrence) * FLOAT


def test_a_hybrid_pools_its_attention_layers_alone(tmp_path: Path) -> None:
    options = FAMILIES["granitemoehybrid"]
    found = real.tiny_model(tmp_path, "granitemoehybrid", **options).map
    assert found.pooled == {1: SHAPE}
    assert found.count == 3
    assert found.bytes_per_token == 2 * (16 + 16) * FLOAT
    convolution, recurrence = 3 * (4 * 32 + 2 * 8), 4 * 32 * 8
    assert found.fixed_bytes_per_slot == 2 * (convolution + recurrence) * FLOAT


def test_kv_caches_outside_the_pool_are_counted_as_they_grow(tmp_path: Path) -> None:
    """mlx-lm's caches grow by 256 tokens: the last step may be empty but for one."""
    found = real.tiny_model(tmp_path, "falcon_h1", **FAMILIES["falcon_h1"]).map
    per_token = 3 * 2 * (16 + 16) * FLOAT
    assert found.pooled == {}
    assert found.bytes_per_token == per_token
    # Inner width 64, two groups' states of 8; three steps; a state of 8 per channel.
    recurrent = 3 * (3 * (64 + 2 * 8) + 64 * 8) * FLOAT
    assert found.fixed_bytes_per_slot == recurrent + 255 * per_token


def test_without_the_pool_every_layer_is_counted_as_it_grows(tmp_path: Path) -> None:
    found = real.tiny_model(tmp_path).map.unpooled()
    assert found.pooled == {}
    assert not found.all_pooled
    assert found.count == 3
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
    assert len(caches.arrays(fresh)) == 3


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
