"""What a layer sees in a step of several rows: everybody's own, nothing padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.engine import real  # noqa: F401  (a BLAS before MLX)

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from mlxceld.engine.caches import Layout
from mlxceld.engine.pool import Layer, LayerShape, Storage
from mlxceld.engine.rows import (
    ListRows,
    OwnRows,
    PoolRows,
    RowMasks,
    StateRows,
    StepRows,
    Window,
    layer_rows,
)

SHAPE = LayerShape(2, Storage(32, mx.float32), Storage(32, mx.float32))
LAYOUTS = pytest.mark.parametrize("cell_major", [False, True])


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Softmax attention of one query token, `q [heads, dim]`, `k, v [kv, n, dim]`."""
    group = q.shape[0] // k.shape[0]
    out = []
    for head, query in enumerate(q):
        scores = np.exp(0.5 * k[head // group] @ query)
        out.append(scores / scores.sum() @ v[head // group])
    return np.stack(out)


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- cells of the pool ----


@LAYOUTS
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(
    ("kinds", "near"),
    [
        (("auto", "auto"), 1e-5),
        (("f16", "bf16"), 0.02),
        (("q8_0", "q8_0"), 0.03),
        (("q4_0", "q4_0"), 0.4),
        (("f32", "q8_0"), 0.03),
        (("q8_0", "f16"), 0.03),
    ],
    ids=str,
)
def test_rows_attend_to_their_own_spans_alone(
    kinds: tuple[str, str], near: float, window: int | None, cell_major: bool
) -> None:
    layer = Layer(SHAPE.stored_as(*kinds), 32, cell_major=cell_major)
    keys, values = _random(2, 2, 32, 32) / 2
    layer.write_chunk(0, mx.array(keys[None]), mx.array(values[None]))
    starts, positions = [20, 3], [6, 1]
    cache = PoolRows(layer, StepRows(starts, positions))
    new_keys, new_values = _random(2, 2, 2, 1, 32, seed=1) / 2
    queries = _random(2, 4, 1, 32, seed=2) / 2
    cache.update_and_fetch(mx.array(new_keys), mx.array(new_values))
    mask = cache.make_mask(1, window_size=window)
    assert mask == (None if window is None else Window(3))
    found = np.array(cache.attend(mx.array(queries), 0.5, mask, None))
    assert found.shape == (2, 4, 1, 32)
    for index, (start, position) in enumerate(zip(starts, positions, strict=True)):
        first = start if window is None else max(start, start + position + 1 - window)
        end = start + position
        k = np.concatenate([keys[:, first:end], new_keys[index]], axis=1)
        v = np.concatenate([values[:, first:end], new_values[index]], axis=1)
        wanted = _attention(queries[index, :, 0], k, v)
        np.testing.assert_allclose(found[index, :, 0], wanted, atol=near)


@pytest.mark.parametrize("kind", ["auto", "q8_0"])
def test_sinks_take_their_share_of_the_attention(kind: str) -> None:
    """A sink as loud as the only key halves what comes of its value."""
    layer = Layer(SHAPE.stored_as(kind, kind), 8, cell_major=False)
    cache = PoolRows(layer, StepRows([4], [0]))
    cache.update_and_fetch(mx.zeros((1, 2, 1, 32)), mx.ones((1, 2, 1, 32)))
    sinks = mx.zeros((4,))
    found = cache.attend(mx.ones((1, 4, 1, 32)), 1.0, None, sinks)
    np.testing.assert_allclose(np.array(found), 0.5, atol=1e-5)


def test_a_step_knows_where_each_row_begins() -> None:
    rows = StepRows([20, 3], [6, 0])
    assert rows.offsets.tolist() == [6, 0]
    assert rows.cells.tolist() == [26, 3]
    assert rows.spans == [(20, 27), (3, 4)]


def test_a_decode_step_refuses_what_it_cannot_do_right() -> None:
    cache = PoolRows(Layer(SHAPE, 8, cell_major=False), StepRows([0], [0]))
    with pytest.raises(ValueError, match="one token of each row, not 2"):
        cache.make_mask(2)
    with pytest.raises(ValueError, match="no mask but a window"):
        cache.attend(mx.zeros((1, 2, 1, 32)), 1.0, mx.zeros((1, 1)), None)
    own = OwnRows([KVCache()])
    with pytest.raises(ValueError, match="one token of each row, not 2"):
        own.make_mask(2, return_array=False, window_size=None)
    with pytest.raises(ValueError, match="no mask but its rows' own"):
        own.attend(mx.zeros((1, 2, 1, 32)), 1.0, mx.zeros((1, 1)), None)
    with pytest.raises(ValueError, match="one token of each row, not 3"):
        StateRows([ArraysCache(1)]).make_mask(3)


# ---- windows ----


def _window(n: int, seed: int) -> tuple[RotatingKVCache, np.ndarray, np.ndarray]:
    """A window of 4 after `n` tokens, and all keys and values it has been given."""
    cache = RotatingKVCache(max_size=4)
    keys, values = _random(2, 2, n, 32, seed=seed)
    if n:
        cache.update_and_fetch(mx.array(keys[None]), mx.array(values[None]))
    return cache, keys, values


def test_windows_of_different_ages_attend_each_to_its_last_tokens() -> None:
    """Rows that hold 0, 2 and 9 tokens of windows of 4, for six steps."""
    held = [_window(n, seed=n) for n in (0, 2, 9)]
    for step in range(6):
        cache = OwnRows([window for window, _, _ in held])
        assert cache.offset.tolist() == [0 + step, 2 + step, 9 + step]
        new_keys, new_values = _random(2, 3, 2, 1, 32, seed=100 + step)
        queries = _random(3, 4, 1, 32, seed=200 + step)
        mask = cache.make_mask(1, window_size=None, return_array=False)
        assert mask is None
        cache.update_and_fetch(mx.array(new_keys), mx.array(new_values))
        found = np.array(cache.attend(mx.array(queries), 0.5, mask, None))
        for i, (window, keys, values) in enumerate(held):
            keys = np.concatenate([keys, new_keys[i]], axis=1)
            values = np.concatenate([values, new_values[i]], axis=1)
            held[i] = window, keys, values
            wanted = _attention(queries[i, :, 0], keys[:, -4:], values[:, -4:])
            np.testing.assert_allclose(found[i, :, 0], wanted, atol=1e-5)


def test_each_row_brings_the_mask_of_its_own_window() -> None:
    """Attention to the last 2 tokens over caches that hold 4: only a row that has more
    than 2 needs a mask."""
    old, keys, values = _window(9, seed=1)
    young, _, _ = _window(1, seed=2)
    cache = OwnRows([old, young])
    mask = cache.make_mask(1, window_size=2, return_array=False)
    assert isinstance(mask, RowMasks)
    assert mask.masks[1] is None
    new = _random(2, 2, 1, 32, seed=3)
    query = _random(2, 4, 1, 32, seed=4)
    cache.update_and_fetch(mx.array(new), mx.array(new))
    found = np.array(cache.attend(mx.array(query), 0.5, mask, None))
    k = np.concatenate([keys[:, -1:], new[0]], axis=1)
    v = np.concatenate([values[:, -1:], new[0]], axis=1)
    wanted = _attention(query[0, :, 0], k, v)
    np.testing.assert_allclose(found[0, :, 0], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["pool", "own"])
def test_a_layer_may_attend_again_to_what_another_has_written(kind: str) -> None:
    cache: PoolRows | OwnRows
    if kind == "pool":
        cache = PoolRows(Layer(SHAPE, 8, cell_major=False), StepRows([2], [0]))
    else:
        cache = OwnRows([RotatingKVCache(max_size=4)])
    cache.update_and_fetch(mx.ones((1, 2, 1, 32)), mx.full((1, 2, 1, 32), 7.0))
    keys, values = cache.keys_and_values()
    assert keys.shape == values.shape == (1, 2, 1, 32)
    found = cache.attend(mx.ones((1, 4, 1, 32)), 1.0, None, None)
    np.testing.assert_allclose(np.array(found), 7.0, atol=1e-5)


# ---- recurrent state ----


def _states(*rows: Sequence[float] | None) -> list[ArraysCache]:
    found = []
    for row in rows:
        cache = ArraysCache(2)
        cache[0] = None if row is None else mx.array([row])
        found.append(cache)
    return found


def _numbers(state: mx.array | None) -> object:
    assert state is not None
    return state.tolist()


def test_state_is_put_together_and_taken_apart_row_by_row() -> None:
    caches = _states([1, 2], [3, 4])
    rows = StateRows(caches)
    assert _numbers(rows[0]) == [[1, 2], [3, 4]]
    rows[0] = mx.array([[10, 20], [30, 40]])
    assert [_numbers(cache[0]) for cache in caches] == [[[10, 20]], [[30, 40]]]
    assert _numbers(rows[0]) == [[10, 20], [30, 40]]


def test_a_row_that_reads_its_first_token_begins_with_zeros() -> None:
    rows = StateRows(_states([1, 2], None, [5, 6]))
    assert _numbers(rows[0]) == [[1, 2], [0, 0], [5, 6]]


def test_where_no_row_has_state_yet_the_model_is_told_so() -> None:
    rows = StateRows(_states(None, None))
    assert rows[0] is None
    rows[0] = mx.array([[1], [2]])
    assert _numbers(rows[0]) == [[1], [2]]
    assert rows[1] is None


def test_state_knows_no_padding() -> None:
    rows = StateRows(_states([1], [2]))
    rows.advance(1)
    rows.make_mask(1)
    assert (rows.lengths, rows.left_padding) == (None, None)


# ---- what kind a layer is ----


def test_each_entry_of_the_list_gets_the_rows_of_its_kind() -> None:
    """One list of state and a pooled layer, one window, one pooled layer."""
    layers = iter(Layer(SHAPE, 8, cell_major=False) for _ in range(2))
    where = StepRows([0, 4], [0, 0])
    listed = Layout(parts=(Layout(), Layout(SHAPE)))
    pooled: list[PoolRows] = []

    def pool() -> PoolRows:
        pooled.append(PoolRows(next(layers), where))
        return pooled[-1]

    pair = layer_rows(
        listed, [CacheList(ArraysCache(1), KVCache()) for _ in range(2)], pool
    )
    assert isinstance(pair, ListRows)
    assert isinstance(pair[0], StateRows)
    window = layer_rows(Layout(), [RotatingKVCache(4), RotatingKVCache(4)], pool)
    assert isinstance(window, OwnRows)
    plain = layer_rows(Layout(SHAPE), [KVCache(), KVCache()], pool)
    assert pooled == [pair[1], plain]
