"""The kernel of packed.py for few rows, thread by thread on the host."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from tests.engine.hosting import TYPES, Held, build, launch, needs_linux, source

# isort: split
import mlx.core as mx

from mlxceld.engine import packed

pytestmark = needs_linux

KINDS = [(mx.float16, 32, 1), (mx.float16, 64, 4), (mx.bfloat16, 128, 2)]
"""Type, columns that share a scale, and rows in eights."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    header = re.sub(r"#include.*", "", packed._HEADER)
    for kind in ("__half", "__nv_bfloat16"):
        tile = f"multiply_tile<{kind}>(sum, a, b);"
        header = re.sub(r"asm volatile\(.*?\);", tile, header, count=1, flags=re.S)
    folder = tmp_path_factory.mktemp("packed")
    return build(folder, header, [_source(*kind) for kind in KINDS])


def _name(dtype: mx.Dtype, group: int, tiles: int) -> str:
    return f"packed_{TYPES[dtype]}_{group}_{tiles}"


def _source(dtype: mx.Dtype, group: int, tiles: int) -> str:
    kind = TYPES[dtype]
    arguments = {
        "x": f"const {kind}",
        "x_shape": "shape",
        "weights": "const uint32_t",
        "weights_shape": "shape",
        "scales": f"const {kind}",
        "offsets": f"const {kind}",
        "out": kind,
    }
    constants = {"GROUP": group, "TILES": tiles, "WARPS": packed._WARPS}
    body = f"using T = {kind};\n{packed._SOURCE}"
    return source(_name(dtype, group, tiles), body, arguments, constants)


@pytest.mark.parametrize("lines", [1, 16, 33])
@pytest.mark.parametrize(
    ("dtype", "group", "tiles", "rows", "columns"),
    [
        (mx.float16, 32, 1, 1, 32),
        (mx.float16, 32, 1, 8, 1024 + 96),
        (mx.float16, 64, 4, 17, 576),
        (mx.float16, 64, 4, 32, 64),
        (mx.bfloat16, 128, 2, 9, 384),
        (mx.bfloat16, 128, 2, 16, 128),
    ],
)
def test_it_multiplies_with_the_unpacked_weights(
    kernels: ctypes.CDLL,
    dtype: mx.Dtype,
    group: int,
    tiles: int,
    rows: int,
    columns: int,
    lines: int,
) -> None:
    mx.random.seed(rows)
    x = mx.random.normal((rows, columns)).astype(dtype)
    plain = mx.random.normal((lines, columns)).astype(dtype)
    weights, scales, offsets = mx.quantize(plain, group_size=group, bits=4)
    out = Held(mx.full((rows, lines), float("nan"), dtype))
    arrays = [Held(x), x.shape, Held(weights), weights.shape]
    arrays += [Held(scales), Held(offsets), out]
    kernel, warps = getattr(kernels, _name(dtype, group, tiles)), packed._WARPS
    launch(kernel, arrays, (-(-lines // 16), 1, 1), warps * 32, seed=lines)
    scales, offsets = scales.astype(mx.float32), offsets.astype(mx.float32)
    unpacked = mx.dequantize(weights, scales, offsets, group_size=group, bits=4)
    left, right, found = (
        np.array(a.astype(mx.float32), np.float64) for a in (x, unpacked, out.read())
    )
    # The kernel rounds weights to the type before it multiplies.
    close = 4e-3 if dtype == mx.float16 else 4e-2
    np.testing.assert_allclose(
        found / columns**0.5, left @ right.T / columns**0.5, atol=close
    )
