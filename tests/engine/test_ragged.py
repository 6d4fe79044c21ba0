"""One kernel for all rows: what it is asked for, and on CUDA what it answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx

from mlxceld.engine import ragged
from mlxceld.engine.pool import Layer, LayerShape, Storage
from mlxceld.engine.rows import PoolRows, StepRows
from mlxceld.working import parts

Sides = tuple[mx.array, mx.array]

HEADS, KV_HEADS, DIM, CELLS = 8, 2, 64, 600
SPANS = [(0, 1), (10, 266), (270, 527), (530, 600)]
"""One cell, a whole stretch of 256, one more than that, and a shorter one."""


def softmax_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    spans: Sequence[tuple[int, int]],
) -> np.ndarray:
    """`[B, heads, 1, dim]` in NumPy's double precision, row by row, head by head."""
    q, k, v = (
        np.array(a.astype(mx.float32), np.float64) for a in (queries, keys, values)
    )
    out = np.zeros_like(q)
    for row, (start, end) in enumerate(spans):
        for head in range(q.shape[1]):
            shared = head // (q.shape[1] // k.shape[1])
            scores = k[start:end, shared] @ q[row, head, 0] / np.sqrt(q.shape[3])
            weights = np.exp(scores - scores.max())
            out[row, head, 0] = weights @ v[start:end, shared] / weights.sum()
    return out


def randoms(dtype: mx.Dtype = mx.float32) -> tuple[mx.array, mx.array, mx.array]:
    """Queries of every row, and keys and values of all cells."""
    mx.random.seed(3)
    queries = mx.random.normal((len(SPANS), HEADS, 1, DIM)).astype(dtype)
    keys = mx.random.normal((CELLS, KV_HEADS, DIM)).astype(dtype)
    values = mx.random.normal((CELLS, KV_HEADS, DIM)).astype(dtype)
    return queries, keys, values


def filled_layer(keys: mx.array, values: mx.array) -> Layer:
    """A cell-major layer of the pool that holds the given cells."""
    side = Storage(DIM, keys.dtype)
    layer = Layer(LayerShape(KV_HEADS, side, side), CELLS, cell_major=True)
    layer.write_chunk(0, keys.swapaxes(0, 1)[None], values.swapaxes(0, 1)[None])
    return layer


def rows_of(layer: Layer) -> PoolRows:
    """Rows which have just written what their last cells held already."""
    starts = [start for start, _ in SPANS]
    held = [end - start - 1 for start, end in SPANS]
    rows = PoolRows(layer, StepRows(starts, held))
    rows.update_and_fetch(*last_cells(*layer.view(0, CELLS)))
    return rows


def last_cells(*held: mx.array) -> list[mx.array]:
    """What `[1, kv_heads, cells, dim]` hold in the last cell of each span."""
    lasts = mx.array([end - 1 for _, end in SPANS])
    return [side[0][:, lasts].swapaxes(0, 1)[:, :, None] for side in held]


@pytest.mark.parametrize("window", [None, 40])
def test_the_row_wise_path_and_the_kernel_are_asked_for_the_same(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    queries, keys, values = randoms()
    layer = filled_layer(keys, values)
    seen = [(max(a, b - window) if window else a, b) for a, b in SPANS]
    wanted = softmax_attention(queries, keys, values, seen)

    def answered() -> np.ndarray:
        rows = rows_of(layer)
        mask = rows.make_mask(1, window_size=window)
        return np.array(rows.attend(queries, DIM**-0.5, mask, None))

    np.testing.assert_allclose(answered(), wanted, atol=1e-5)

    asked: list[list[list[int]]] = []

    def kernel(
        q: mx.array, new: Sides, pool: Sides, spans: ragged.Spans, scale: float
    ) -> mx.array:
        asked.append(spans.array.tolist())
        assert scale == DIM**-0.5
        for held, plain, fresh in zip(pool, (keys, values), new, strict=True):
            assert np.array_equal(np.array(held), np.array(plain))
            lasts = [np.array(plain[end - 1]) for _, end in SPANS]
            assert np.array_equal(np.array(fresh[:, :, 0]), lasts)
        return q

    monkeypatch.setattr(ragged, "available", lambda: True)
    monkeypatch.setattr(ragged, "attend", kernel)
    assert np.array_equal(answered(), np.array(queries))
    assert asked == [[[a for a, _ in seen], [b - a for a, b in seen]]]


@pytest.mark.parametrize(
    ("rows", "longest", "stretch", "parts"),
    [
        # Many rows fill the device with stretches of 256 cells.
        (8, 1, 256, 1),
        (8, 256, 256, 1),
        (8, 257, 256, 2),
        (32, 1000, 256, 4),
        # Fewer rows are cut finer, and numbers of parts are powers of two.
        (1, 1000, 64, 16),
        (2, 100, 64, 2),
        (3, 1100, 128, 16),
        # One row of no more than 64 parts: 16384 = 64 x 256, and one cell more.
        (1, 16384, 256, 64),
        (1, 16385, 512, 64),
        (8, 131072, 2048, 64),
    ],
)
def test_the_grid_follows_the_number_of_rows_and_the_longest(
    rows: int, longest: int, stretch: int, parts: int
) -> None:
    assert ragged.Grid.of(rows, longest) == ragged.Grid(stretch, parts)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 7, 8, 9, 40])
@pytest.mark.parametrize("slot_ctx", [1, 63, 64, 65, 1000, 4096, 5000, 16384, 40000])
def test_no_rows_have_more_parts_than_the_plan_counts(
    slots: int, slot_ctx: int
) -> None:
    most = max(n * ragged.Grid.of(n, slot_ctx).parts for n in range(1, slots + 1))
    assert most <= slots * parts(slots, slot_ctx)


def test_a_window_needs_no_blocks_for_what_lies_before_it() -> None:
    assert ragged.Grid(256, 16).within(1024) == ragged.Grid(256, 4)
    assert ragged.Grid(256, 16).within(1025) == ragged.Grid(256, 5)
    assert ragged.Grid(256, 2).within(1024) == ragged.Grid(256, 2)


@pytest.mark.parametrize(("rows", "served"), [(512, True), (513, False)])
def test_there_are_counters_for_65536_groups_of_heads(rows: int, served: bool) -> None:
    """128 heads which share no keys are as many groups for each row."""
    queries = mx.zeros((rows, 128, 1, DIM), dtype=mx.float16)
    new = mx.zeros((rows, 128, 1, DIM), dtype=mx.float16)
    pool = mx.zeros((CELLS, 128, DIM), dtype=mx.float16)
    assert ragged.fits(queries, (new, new), (pool, pool)) is served


def test_rows_without_the_kernel_are_served_row_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries, keys, values = randoms()
    monkeypatch.setattr(ragged, "available", lambda: True)
    monkeypatch.setattr(
        ragged, "attend", lambda *_: pytest.fail("the kernel was asked")
    )
    wanted = softmax_attention(queries, keys, values, SPANS)
    odd = LayerShape(KV_HEADS, *[Storage.of(DIM, mx.float32, "q8_0")] * 2)
    quantised = Layer(odd, CELLS, cell_major=True)
    quantised.write_chunk(0, keys.swapaxes(0, 1)[None], values.swapaxes(0, 1)[None])
    found = rows_of(quantised).attend(queries, DIM**-0.5, None, None)
    np.testing.assert_allclose(np.array(found), wanted, atol=0.05)
    sinks = mx.full((HEADS,), -1e9)
    found = rows_of(filled_layer(keys, values)).attend(queries, DIM**-0.5, None, sinks)
    np.testing.assert_allclose(np.array(found), wanted, atol=1e-5)
    narrow = Storage(48, mx.float32)
    layer = Layer(LayerShape(KV_HEADS, narrow, narrow), CELLS, cell_major=True)
    found = rows_of(layer).attend(queries[..., :48], 1.0, None, None)
    assert not np.array(found).any()


def test_one_row_alone_is_left_to_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "available", lambda: True)
    assert not StepRows([0], [4]).together
    assert StepRows([0, 9], [4, 4]).together


@pytest.mark.skipif(not mx.cuda.is_available(), reason="the kernel is for CUDA")
@pytest.mark.parametrize("shape", [(8, 2, 64), (8, 8, 128), (9, 3, 128), (32, 1, 256)])
@pytest.mark.parametrize(
    ("dtype", "close"), [(mx.float16, 2e-3), (mx.bfloat16, 2e-2), (mx.float32, 1e-4)]
)
@pytest.mark.parametrize("grid", [ragged.Grid(256, 2), ragged.Grid(16, 32)])
def test_the_kernel_writes_the_new_cells_and_attends_over_each_rows_own(
    shape: tuple[int, int, int], dtype: mx.Dtype, close: float, grid: ragged.Grid
) -> None:
    heads, kv_heads, dim = shape
    with mx.stream(mx.gpu):
        queries = mx.random.normal((len(SPANS), heads, 1, dim)).astype(dtype)
        keys = mx.random.normal((CELLS, kv_heads, dim)).astype(dtype)
        values = mx.random.normal((CELLS, kv_heads, dim)).astype(dtype)
        new = last_cells(keys.swapaxes(0, 1)[None], values.swapaxes(0, 1)[None])
        lasts = mx.array([end - 1 for _, end in SPANS])
        pool = mx.array(keys), mx.array(values)
        for side in pool:
            side[lasts] = 7.0
        mx.eval(new, pool)
        array = ragged.Spans.of(SPANS).array
        spans = ragged.Spans(array, grid)
        wanted = softmax_attention(queries, keys, values, SPANS)
        # Twice: counters are left as they were found.
        for _ in range(2):
            found = ragged.attend(queries, (new[0], new[1]), pool, spans, dim**-0.5)
            found = found.astype(mx.float32)
            np.testing.assert_allclose(np.array(found), wanted, atol=close)
        for held, plain in zip(pool, (keys, values), strict=True):
            assert mx.array_equal(held, plain)
