"""Cells of the pool: both layouts hold the same, and nothing is ever copied whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import real

# isort: split
import mlx.core as mx

from mlxceld.engine import pool as pools
from mlxceld.engine.pool import Layer, LayerShape, Pool, SpanCache, Storage
from mlxceld.engine.rows import PoolRows, StepRows
from mlxceld.engine.spans import Move

SHAPE = LayerShape(2, Storage(4, mx.float32), Storage(6, mx.float32))
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


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_what_is_no_number_stays_out_of_a_pool_whose_chunks_are_filled_up(
    kind: str,
) -> None:
    """NaN, infinity, and 1e5, which float16 cannot hold."""
    storage = Storage.of(32, mx.float32, kind)
    layer = Layer(LayerShape(1, storage, storage), 8, cell_major=True)
    new = mx.ones((1, 1, 4, 32))
    new[0, 0, 1] = float("nan")
    new[0, 0, 2, 5] = -float("inf")
    new[0, 0, 3, 31] = 1e5
    layer.write_chunk(0, new, new)
    layer.write_rows(mx.array([4, 5, 6, 7]), *[new[0].swapaxes(0, 1)[:, :, None]] * 2)
    expected = np.ones((4, 32))
    expected[1] = 0
    expected[2, 5] = 0
    expected[3, 31] = 0 if kind == "f16" else 1e5
    for side in layer.view(0, 8):
        found = np.array(side.astype(mx.float32))[0, 0]
        for part in (found[:4], found[4:]):
            # The scale of eight bits over 1e5 is 392, that of eight over 1 small.
            np.testing.assert_allclose(part[:3], expected[:3], atol=0.01)
            np.testing.assert_allclose(part[3], expected[3], atol=400)


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


WIDE = LayerShape(4, Storage(32, mx.float32), Storage(32, mx.float32))


def _layer_of(mib: int, kind: str = "auto", *, cell_major: bool) -> Layer:
    """As many cells as plain float32 in so many MiB would be."""
    shape = WIDE.stored_as(kind, kind)
    layer = Layer(shape, mib * MIB // WIDE.bytes_per_token, cell_major=cell_major)
    mx.eval(layer.arrays())
    return layer


def _rows(layer: Layer) -> None:
    for position in range(4):
        new = mx.ones((2, 4, 1, 32))
        cache = PoolRows(layer, StepRows([64, 128], [position, position + 9]))
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
@pytest.mark.parametrize("kind", ["auto", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("action", [_rows, _chunks, _moves])
def test_the_memory_a_write_needs_does_not_depend_on_the_pool(
    action: Callable[[Layer], None], kind: str, cell_major: bool
) -> None:
    small, large = (_layer_of(mib, kind, cell_major=cell_major) for mib in (2, 32))
    for layer in (small, large):
        action(layer)
    more = real.peak_of(lambda: action(large)) - real.peak_of(lambda: action(small))
    # Small buffers come and go by chance, more of them for unpacking; the smallest
    # array of the large pool, the scales of its keys, has 1 MiB.
    assert more < (MIB / 64 if kind == "auto" else MIB / 8)


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


# ---- cache types ----


def test_the_bytes_of_a_token_are_those_of_its_type() -> None:
    """32 values of 8 or 4 bits, and a scale and an offset as wide as the model's."""
    full, half = Storage(64, mx.float32), Storage(64, mx.float16)
    assert (full.nbytes, half.nbytes) == (256, 128)

    def bytes_of(own: Storage, kind: str) -> int:
        return Storage.of(64, own.dtype, kind).nbytes

    assert [bytes_of(half, kind) for kind in ("auto", "f16", "f32")] == [128, 128, 256]
    assert bytes_of(half, "q8_0") == 64 + 2 * 2 * 2
    assert bytes_of(half, "q4_0") == 32 + 2 * 2 * 2
    assert bytes_of(full, "q8_0") == 64 + 2 * 2 * 4
    assert bytes_of(full, "q4_0") == 32 + 2 * 2 * 4


def test_keys_and_values_may_be_stored_differently() -> None:
    mixed = WIDE.stored_as("q8_0", "f16")
    assert mixed.bytes_per_token == 4 * ((32 + 2 * 4) + 32 * 2)
    layer = Layer(mixed, 100, cell_major=False)
    assert layer.nbytes == 100 * mixed.bytes_per_token


def test_heads_that_do_not_divide_into_groups_are_named() -> None:
    with pytest.raises(ValueError, match="q4_0 .* multiple of 32, not of 80 values"):
        Storage.of(80, mx.float16, "q4_0")


def _step(array: np.ndarray, bits: int) -> np.ndarray:
    """The distance of `2 ** bits` values spread evenly over each head of 32."""
    return (array.max(-1) - array.min(-1)) / (2**bits - 1)


@LAYOUTS
@pytest.mark.parametrize(("kind", "bits"), [("q8_0", 8), ("q4_0", 4)])
def test_quantised_cells_hold_what_was_written_but_for_their_steps(
    kind: str, bits: int, cell_major: bool
) -> None:
    rng = np.random.default_rng(3)
    layer = Layer(WIDE.stored_as(kind, kind), 24, cell_major=cell_major)
    keys, values = rng.standard_normal((2, 1, 4, 9, 32)).astype(np.float32)
    layer.write_chunk(5, mx.array(keys[:, :, :8]), mx.array(values[:, :, :8]))
    last = keys[:, :, 8:], values[:, :, 8:]
    layer.write_rows(mx.array([13]), mx.array(last[0]), mx.array(last[1]))
    for found, wanted in zip(layer.view(5, 14), (keys, values), strict=True):
        apart = np.abs(np.array(found) - wanted).max(-1)
        assert (apart <= 1.01 * _step(wanted, bits)).all()
    assert not np.array(layer.view(14, 24)[0]).any()


@LAYOUTS
@pytest.mark.parametrize("kind", ["auto", "f16", "q8_0", "q4_0"])
def test_a_raw_copy_put_elsewhere_is_the_same_to_the_bit(
    kind: str, cell_major: bool
) -> None:
    rng = np.random.default_rng(4)
    layer = Layer(WIDE.stored_as(kind, kind), 40, cell_major=cell_major)
    keys, values = rng.standard_normal((2, 1, 4, 9, 32)).astype(np.float32)
    layer.write_chunk(3, mx.array(keys), mx.array(values))
    copy = layer.raw(3, 12)
    layer.write_chunk(0, mx.zeros((1, 4, 20, 32)), mx.zeros((1, 4, 20, 32)))
    before = Layer(WIDE.stored_as(kind, kind), 12, cell_major=cell_major)
    before.write_chunk(3, mx.array(keys), mx.array(values))
    layer.put_raw(27, *copy)
    for found, wanted in zip(layer.view(27, 36), before.view(3, 12), strict=True):
        assert mx.array_equal(found, wanted).item()
    moved = Layer(WIDE.stored_as(kind, kind), 40, cell_major=cell_major)
    moved.write_chunk(3, mx.array(keys), mx.array(values))
    moved.move(3, 7, 9)
    for found, wanted in zip(moved.view(7, 16), before.view(3, 12), strict=True):
        assert mx.array_equal(found, wanted).item()


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_a_span_gives_back_what_the_model_computes_in(kind: str) -> None:
    layer = Layer(WIDE.stored_as(kind, kind), 16, cell_major=False)
    new = mx.ones((1, 4, 3, 32))
    keys, values = SpanCache(layer, 5, 0).update_and_fetch(new, 2 * new)
    assert (keys.dtype, values.dtype) == (mx.float32, mx.float32)
    assert (keys.shape, values.shape) == ((1, 4, 3, 32), (1, 4, 3, 32))
    assert mx.all(keys == 1).item()
    assert mx.all(values == 2).item()


def test_a_move_writes_when_nothing_that_is_queued_holds_the_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else MLX on a GPU copies the layer, for the sake of what was just read of it."""
    layer = _filled(8, cell_major=True)
    done: list[str] = []
    write = Layer.put_raw
    monkeypatch.setattr(pools, "wait_for_queue", lambda: done.append("waited"))

    def noted(*args: Any) -> None:
        done.append("written")
        write(*args)

    monkeypatch.setattr(Layer, "put_raw", noted)
    layer.move(1, 5, 2)
    assert done == ["waited", "written"]
    assert _held(layer, 8) == [0, 1, 2, 3, 4, 1, 2, 7]
