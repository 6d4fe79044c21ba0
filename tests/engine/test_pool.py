"""Cells of the pool: both layouts hold the same, and nothing is ever copied whole."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import real

# isort: split
import mlx.core as mx

from mlxceld.engine.pool import (
    Layer,
    LayerShape,
    Pool,
    RowsCache,
    SpanCache,
    StepRows,
    Window,
)
from mlxceld.engine.spans import Move

SHAPE = LayerShape(heads=2, key_dim=4, value_dim=6, dtype=mx.float32)
LAYOUTS = pytest.mark.parametrize("cell_major", [False, True])
MIB = 1 << 20


def _numbers(n: int, dim: int, first: float = 0.0) -> mx.array:
    """`[1, 2, n, dim]`, token t full of `first + t`, the second head 1000 higher."""
    tokens = mx.arange(n)[None, None, :, None] + first
    heads = mx.array([0.0, 1000.0])[None, :, None, None]
    return mx.broadcast_to(tokens + heads, (1, 2, n, dim))


def _filled(cells: int, *, cell_major: bool) -> Layer:
    """Cell c holds c as its key and -c as its value."""
    layer = Layer(SHAPE, cells, cell_major=cell_major)
    layer.write_chunk(0, _numbers(cells, 4), -_numbers(cells, 6))
    return layer


def _held(layer: Layer, cells: int) -> list[float]:
    """The number in each cell, after checking that the whole cell says the same."""
    keys, values = map(np.array, layer.view(0, cells))
    assert keys.shape == (1, 2, cells, 4)
    assert values.shape == (1, 2, cells, 6)
    numbers = keys[0, 0, :, 0]
    # The second head is 1000 higher wherever something was written.
    second = np.where(numbers + keys[0, 1, :, 0] > 0, numbers + 1000, 0)
    np.testing.assert_array_equal(keys[0, 0], numbers[:, None].repeat(4, 1))
    np.testing.assert_array_equal(keys[0, 1], second[:, None].repeat(4, 1))
    np.testing.assert_array_equal(values[0, 0], -numbers[:, None].repeat(6, 1))
    np.testing.assert_array_equal(values[0, 1], -second[:, None].repeat(6, 1))
    return [float(number) for number in numbers]


@LAYOUTS
def test_a_chunk_lands_in_consecutive_cells_and_nowhere_else(cell_major: bool) -> None:
    layer = Layer(SHAPE, 8, cell_major=cell_major)
    layer.write_chunk(3, _numbers(4, 4, 10), -_numbers(4, 6, 10))
    assert _held(layer, 8) == [0, 0, 0, 10, 11, 12, 13, 0]


@LAYOUTS
def test_rows_land_in_the_cells_named_for_them(cell_major: bool) -> None:
    layer = Layer(SHAPE, 8, cell_major=cell_major)
    keys = mx.concatenate([_numbers(1, 4, 7), _numbers(1, 4, 8), _numbers(1, 4, 9)])
    values = mx.concatenate([_numbers(1, 6, 7), _numbers(1, 6, 8), _numbers(1, 6, 9)])
    layer.write_rows(mx.array([5, 0, 6]), keys, -values)
    assert _held(layer, 8) == [8, 0, 0, 0, 0, 7, 9, 0]


@LAYOUTS
def test_a_view_is_heads_by_cells_from_its_start_to_before_its_end(
    cell_major: bool,
) -> None:
    keys, values = _filled(8, cell_major=cell_major).view(2, 5)
    assert keys.shape == (1, 2, 3, 4)
    assert values.shape == (1, 2, 3, 6)
    assert keys[0, :, :, 0].tolist() == [[2, 3, 4], [1002, 1003, 1004]]
    assert values[0, :, :, 5].tolist() == [[-2, -3, -4], [-1002, -1003, -1004]]


@LAYOUTS
@pytest.mark.parametrize(("source", "target"), [(0, 2), (4, 1), (3, 3), (0, 5)])
def test_a_move_may_overlap_in_either_direction(
    source: int, target: int, cell_major: bool
) -> None:
    layer = _filled(10, cell_major=cell_major)
    wanted = [float(cell) for cell in range(10)]
    wanted[target : target + 5] = wanted[source : source + 5]
    layer.move(source, target, 5)
    assert _held(layer, 10) == wanted


@settings(max_examples=25, deadline=None)
@given(
    cell_major=st.booleans(),
    moves=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4)), max_size=5
    ),
)
def test_moves_are_carried_out_in_order_in_every_layer(
    cell_major: bool, moves: list[tuple[int, int, int]]
) -> None:
    pool = Pool([SHAPE, SHAPE], 16, cell_major=cell_major)
    for layer in pool.layers:
        layer.write_chunk(0, _numbers(16, 4), -_numbers(16, 6))
    wanted = [float(cell) for cell in range(16)]
    for source, target, n in moves:
        wanted[target : target + n] = wanted[source : source + n]
    pool.move([Move(0, source, target, n) for source, target, n in moves])
    assert [_held(layer, 16) for layer in pool.layers] == [wanted, wanted]


@LAYOUTS
def test_the_pool_is_as_large_as_its_cells(cell_major: bool) -> None:
    pool = Pool([SHAPE, SHAPE], 100, cell_major=cell_major)
    assert SHAPE.bytes_per_token == 2 * (4 + 6) * 4
    assert pool.nbytes == 2 * 100 * 80


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Softmax attention of one query token, `q [heads, dim]`, `k, v [kv, n, dim]`."""
    group = q.shape[0] // k.shape[0]
    out = []
    for head, query in enumerate(q):
        scores = np.exp(0.5 * k[head // group] @ query)
        out.append(scores / scores.sum() @ v[head // group])
    return np.stack(out)


@LAYOUTS
@pytest.mark.parametrize("window", [None, 3])
def test_rows_attend_to_their_own_spans_alone(
    window: int | None, cell_major: bool
) -> None:
    rng = np.random.default_rng(0)
    shape = LayerShape(2, 8, 8, mx.float32)
    layer = Layer(shape, 32, cell_major=cell_major)
    keys, values = rng.standard_normal((2, 2, 32, 8)).astype(np.float32)
    layer.write_chunk(0, mx.array(keys[None]), mx.array(values[None]))
    starts, positions = [20, 3], [6, 1]
    cache = RowsCache(layer, StepRows(starts, positions))
    new_keys, new_values, _ = rng.standard_normal((3, 2, 2, 1, 8)).astype(np.float32)
    queries = rng.standard_normal((2, 4, 1, 8)).astype(np.float32)
    cache.update_and_fetch(mx.array(new_keys), mx.array(new_values))
    mask = cache.make_mask(1, window_size=window)
    assert mask == (None if window is None else Window(3))
    found = np.array(cache.attend(mx.array(queries), 0.5, mask, None))
    assert found.shape == (2, 4, 1, 8)
    for index, (start, position) in enumerate(zip(starts, positions, strict=True)):
        first = start if window is None else max(start, start + position + 1 - window)
        end = start + position
        k = np.concatenate([keys[:, first:end], new_keys[index]], axis=1)
        v = np.concatenate([values[:, first:end], new_values[index]], axis=1)
        wanted = _attention(queries[index, :, 0], k, v)
        np.testing.assert_allclose(found[index, :, 0], wanted, atol=1e-5)


def test_a_decode_step_refuses_what_it_cannot_do_right() -> None:
    cache = RowsCache(Layer(SHAPE, 8, cell_major=False), StepRows([0], [0]))
    with pytest.raises(ValueError, match="one token of each row, not 2"):
        cache.make_mask(2)
    with pytest.raises(ValueError, match="no mask but a window"):
        cache.attend(mx.zeros((1, 2, 1, 4)), 1.0, mx.zeros((1, 1)), None)


@LAYOUTS
def test_a_span_appends_and_fetches_its_text_from_its_start(cell_major: bool) -> None:
    layer = _filled(16, cell_major=cell_major)
    span = SpanCache(layer, 5, 2)
    keys, values = span.update_and_fetch(_numbers(3, 4, 50), -_numbers(3, 6, 50))
    assert span.offset == 5
    assert keys[0, 0, :, 0].tolist() == [5, 6, 50, 51, 52]
    assert values[0, 0, :, 0].tolist() == [-5, -6, -50, -51, -52]
    assert span.make_mask(1, return_array=False, window_size=None) is None
    assert span.make_mask(4, return_array=False, window_size=None) == "causal"
    seen = span.make_mask(2, return_array=True, window_size=None)
    assert seen.tolist() == [[True] * 6 + [False], [True] * 7]


def _layer_of(mib: int, *, cell_major: bool) -> Layer:
    shape = LayerShape(4, 32, 32, mx.float32)
    layer = Layer(shape, mib * MIB // shape.bytes_per_token, cell_major=cell_major)
    mx.eval(layer.arrays())
    return layer


def _rows(layer: Layer) -> None:
    for position in range(4):
        new = mx.ones((2, 4, 1, 32))
        cache = RowsCache(layer, StepRows([64, 128], [position, position + 9]))
        cache.update_and_fetch(new, new)
        mx.eval(cache.attend(mx.ones((2, 8, 1, 32)), 1.0, None, None))


def _chunks(layer: Layer) -> None:
    for position in (0, 16, 32):
        new = mx.ones((1, 4, 16, 32))
        mx.eval(SpanCache(layer, 64, position).update_and_fetch(new, new))


def _moves(layer: Layer) -> None:
    layer.move(64, 72, 32)
    layer.move(72, 0, 32)


@LAYOUTS
@pytest.mark.parametrize("action", [_rows, _chunks, _moves])
def test_the_memory_a_write_needs_does_not_depend_on_the_pool(
    action: Callable[[Layer], None], cell_major: bool
) -> None:
    small, large = (_layer_of(mib, cell_major=cell_major) for mib in (2, 32))
    for layer in (small, large):
        action(layer)
    more = real.peak_of(lambda: action(large)) - real.peak_of(lambda: action(small))
    assert more < 1024


@LAYOUTS
def test_the_time_a_write_needs_does_not_depend_on_the_pool(cell_major: bool) -> None:
    """Copying 128 MiB at each of four steps would take more than 50 ms."""

    def fastest(layer: Layer) -> float:
        times = []
        for _ in range(8):
            began = time.perf_counter()
            _rows(layer)
            times.append(time.perf_counter() - began)
        return min(times[1:])

    small, large = (_layer_of(mib, cell_major=cell_major) for mib in (1, 128))
    assert fastest(large) < 2 * fastest(small) + 0.01
