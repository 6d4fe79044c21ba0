"""The attention kernel of ragged.py, thread by thread on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from tests.engine.hosting import TYPES, Held, build, launch, needs_linux, source

# isort: split
import mlx.core as mx

from mlxceld.engine import ragged
from mlxceld.engine.ragged import Grid
from mlxceld.engine.ragged_source import HEADER, SOURCE
from tests.engine.test_ragged import softmax_attention

pytestmark = needs_linux

THREADS = 128
MODELS = [
    # Heads, key heads, dim. A block takes 2, 8, 3 (of 9 that share a key) and 7 heads.
    (4, 2, 64, mx.float32),
    (8, 1, 256, mx.float16),
    (18, 2, 128, mx.bfloat16),
    (7, 1, 64, mx.float16),
]
SPANS: list[tuple[list[int], Grid | None]] = [
    ([1], None),
    ([2, 63, 64, 65], None),
    ([127, 1, 129, 15, 257], None),
    ([33, 1, 300], Grid(16, 64)),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("ragged"), HEADER, [*map(_source, MODELS)])


def _name(model: tuple[int, int, int, mx.Dtype]) -> str:
    return "ragged_" + "_".join(map(str, model[:3]))


def _source(model: tuple[int, int, int, mx.Dtype]) -> str:
    heads, kv_heads, dim, dtype = model
    kind = TYPES[dtype]
    given = ["queries", "new_keys", "new_values", "keys", "values"]
    arguments = dict.fromkeys(given, f"const {kind}")
    arguments |= dict.fromkeys(["spans", "stretch", "arrived"], "const int")
    arguments |= {"scale": "const float", "out": kind}
    arguments |= dict.fromkeys(["partial", "told"], "float")
    constants = {
        "D": dim,
        "HEADS": ragged._taken(heads // kv_heads),
        "SHARED_BY": heads // kv_heads,
        "KV_HEADS": kv_heads,
        "THREADS": THREADS,
        "MOST_PARTS": 64,
    }
    return source(_name(model), f"using T = {kind};\n{SOURCE}", arguments, constants)


def _placed(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Spans side by side, the first row's at the end of the pool."""
    ends = np.cumsum(lengths[::-1])[::-1]
    return [(int(end) - n, int(end)) for end, n in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize(("lengths", "grid"), SPANS)
@pytest.mark.parametrize("model", MODELS, ids=_name)
def test_rows_attend_to_their_own_cells_and_write_the_newest(
    kernels: ctypes.CDLL,
    model: tuple[int, int, int, mx.Dtype],
    lengths: list[int],
    grid: Grid | None,
) -> None:
    heads, kv_heads, dim, dtype = model
    rows, spans = len(lengths), _placed(lengths)
    grid = grid or Grid.of(rows, max(lengths))
    mx.random.seed(rows)
    queries = mx.random.normal((rows, heads, 1, dim)).astype(dtype)
    size = (sum(lengths), kv_heads, dim)
    keys, values = (mx.random.normal(size).astype(dtype) for _ in range(2))
    lasts = mx.array([end - 1 for _, end in spans])
    stale = []
    for side in (keys, values):
        old = mx.array(side)
        old[lasts] = float("nan")
        stale.append(Held(old))
    firsts = [start for start, _ in spans]
    groups = heads // ragged._taken(heads // kv_heads)
    counters = Held(mx.zeros((rows * groups,), mx.int32))
    nothing = float("nan")
    out = Held(mx.full((rows, heads, 1, dim), nothing, dtype))
    arrays = [
        Held(queries),
        Held(keys[lasts][:, :, None]),
        Held(values[lasts][:, :, None]),
        *stale,
        Held(mx.array([firsts, lengths], mx.int32)),
        Held(mx.array([grid.stretch], mx.int32)),
        counters,
        Held(mx.array([dim**-0.5], mx.float32)),
        out,
        Held(mx.full((rows, heads, grid.parts, dim), nothing)),
        Held(mx.full((rows, heads, grid.parts, 2), nothing)),
    ]
    wanted = softmax_attention(queries, keys, values, spans)
    close = {mx.float32: 1e-5, mx.float16: 2e-3, mx.bfloat16: 2e-2}[dtype]
    # Blocks come in another order each time, and find the counters as they were.
    for seed in range(2):
        kernel = getattr(kernels, _name(model))
        launch(kernel, arrays, (grid.parts, groups, rows), THREADS, seed=seed)
        found = np.array(out.read().astype(mx.float32))
        np.testing.assert_allclose(found, wanted, atol=close)
        assert not np.array(counters.read()).any()
        for held, side in zip(stale, (keys, values), strict=True):
            assert mx.array_equal(held.read(), side)


@pytest.mark.parametrize("model", MODELS, ids=_name)
def test_what_is_no_number_is_not_written(
    kernels: ctypes.CDLL, model: tuple[int, int, int, mx.Dtype]
) -> None:
    """One row of three cells; NaN and the infinities among its new keys and values."""
    heads, kv_heads, dim, dtype = model
    nan, infinity = float("nan"), float("inf")
    new = mx.ones((1, kv_heads, 1, dim))
    new[0, :, 0, 0], new[0, :, 0, 9], new[0, :, 0, dim - 1] = nan, infinity, -infinity
    keys, values = (Held(mx.ones((3, kv_heads, dim), dtype)) for _ in range(2))
    groups = heads // ragged._taken(heads // kv_heads)
    arrays = [
        Held(mx.ones((1, heads, 1, dim), dtype)),
        Held(new.astype(dtype)),
        Held(2 * new.astype(dtype)),
        keys,
        values,
        Held(mx.array([[0], [3]], mx.int32)),
        Held(mx.array([256], mx.int32)),
        Held(mx.zeros((groups,), mx.int32)),
        Held(mx.array([1.0], mx.float32)),
        Held(mx.zeros((1, heads, 1, dim), dtype)),
        Held(mx.zeros((1, heads, 1, dim))),
        Held(mx.zeros((1, heads, 1, 2))),
    ]
    launch(getattr(kernels, _name(model)), arrays, (1, groups, 1), THREADS)
    kept = np.ones((kv_heads, dim))
    kept[:, [0, 9, dim - 1]] = 0
    for side, factor in ((keys, 1), (values, 2)):
        found = np.array(side.read().astype(mx.float32))
        np.testing.assert_array_equal(found[:2], 1)
        np.testing.assert_array_equal(found[2], factor * kept)
