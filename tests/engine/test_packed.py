"""The kernel for few rows and packed weights: when it serves, and what it computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.real import tiny_model  # noqa: F401  (loads MLX in the right order)

# isort: split
import mlx.core as mx

from mlxceld.engine import packed


def fits(
    x: mx.array, *, group_size: int = 64, bits: int = 4, mode: str = "affine"
) -> bool:
    numbers = mx.zeros((8, x.shape[-1] // group_size), dtype=mx.float16)
    return packed.fits(x, numbers, numbers, group_size=group_size, bits=bits, mode=mode)


def test_it_serves_a_few_rows_of_halves_in_four_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = mx.zeros((32, 1, 128), dtype=mx.float16)
    assert not fits(half)  # No CUDA here.
    monkeypatch.setattr(packed, "on_cuda", lambda: True)
    monkeypatch.setattr(packed, "available", lambda: True)
    assert fits(half)
    assert fits(half[:1])
    assert fits(half, group_size=32)
    assert not fits(mx.zeros((33, 1, 128), dtype=mx.float16))
    assert not fits(mx.zeros((3, 11, 128), dtype=mx.float16))
    assert not fits(half, bits=8)
    assert not fits(half, mode="mxfp4")
    assert not fits(half.astype(mx.float32))
    assert not fits(half.astype(mx.bfloat16))  # The scales are not.


@pytest.mark.skipif(not mx.cuda.is_available(), reason="the kernel is for CUDA")
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 17, 32])
@pytest.mark.parametrize(
    ("lines", "columns", "group"),
    [(64, 128, 64), (100, 576, 64), (33, 96, 32), (1024, 4096, 128), (48, 2048, 64)],
)
@pytest.mark.parametrize(("dtype", "close"), [(mx.float16, 2e-3), (mx.bfloat16, 2e-2)])
def test_it_multiplies_with_the_unpacked_weights(
    rows: int, lines: int, columns: int, group: int, dtype: mx.Dtype, close: float
) -> None:
    with mx.stream(mx.gpu):
        mx.random.seed(rows)
        x = mx.random.normal((rows, 1, columns)).astype(dtype)
        plain = mx.random.normal((lines, columns)).astype(dtype)
        weights, scales, offsets = mx.quantize(plain, group_size=group, bits=4)
        found = packed.multiply(x, weights, scales, offsets, group)
        unpacked = mx.dequantize(weights, scales, offsets, group_size=group, bits=4)
        left, right, got = (
            np.array(a.astype(mx.float32), np.float64) for a in (x, unpacked, found)
        )
    assert found.shape == (rows, 1, lines)
    # Errors grow like the spread of a sum of so many products, which is their root.
    np.testing.assert_allclose(
        got / columns**0.5, left @ right.T / columns**0.5, atol=close
    )
