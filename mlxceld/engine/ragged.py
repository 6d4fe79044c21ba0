"""Attention of all rows of a decode step in one kernel, for CUDA.

Row by row, a step costs a handful of operations for each row and layer, and on a GPU
the host cannot queue them as fast as a small model is done with them. Here one kernel
reads every row's own span of the pool: still no padding, no mask and no copy. Each
block takes a stretch of one row's cells and all query heads that share a key head, and
a second kernel puts the stretches together.

The row-wise path in rows.py is the reference, and what serves wherever this does not:
other devices, quantised keys, sinks, and head sizes that do not fill lanes of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx

from mlxceld.engine.attention import on_cuda

LEAST_ROWS = 2
"""One row alone is served faster by MLX's own kernel."""

_STRETCH = 256
"""Cells that one block reads."""

_THREADS = 128

_DIMS = (64, 128, 256)
"""Sizes of heads whose lanes of eight values divide a warp."""

_MOST_HEADS = 8
"""Query heads that one block takes; more would not fit into registers."""

_HEADER = """
constexpr float LOG2E = 1.4426950408889634f;

template <typename T>
struct alignas(sizeof(T) == 2 ? 16 : 32) Eight {
  T at[8];
};

template <typename T>
__device__ inline void read(const T* from, float* to) {
  const Eight<T> found = *reinterpret_cast<const Eight<T>*>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    to[i] = static_cast<float>(found.at[i]);
  }
}
"""

_PARTS = """
  // queries [B, heads, 1, D], keys and values [cells, kv_heads, D],
  // spans [2, B]: first cells and lengths; scale [1].
  constexpr int LANES = D / 8;
  constexpr int GROUPS = THREADS / LANES;
  const int part = blockIdx.x;
  const int row = blockIdx.z;
  const int first_head = blockIdx.y * HEADS;
  const int rows = gridDim.z;
  const int parts = gridDim.x;
  const int heads = gridDim.y * HEADS;
  const int n = spans[rows + row];
  const int begin = part * STRETCH;
  if (begin >= n) {
    return;
  }
  const int end = min(n, begin + STRETCH);
  const int lane = threadIdx.x % LANES;
  const int group = threadIdx.x / LANES;
  const int key_head = first_head / SHARED_BY;
  const size_t stride = static_cast<size_t>(KV_HEADS) * D;
  const size_t start =
      static_cast<size_t>(spans[row]) * stride + key_head * D + lane * 8;

  float query[HEADS][8];
  float sum[HEADS][8];
  float most[HEADS];
  float weight[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    read(queries + (static_cast<size_t>(row) * heads + first_head + h) * D + lane * 8,
         query[h]);
    most[h] = -INFINITY;
    weight[h] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      query[h][i] *= scale[0] * LOG2E;
      sum[h][i] = 0;
    }
  }
  // All lanes of a warp go round equally often, since they add up together.
#pragma unroll 2
  for (int base = begin; base < end; base += GROUPS) {
    const int cell = base + group;
    const bool there = cell < end;
    const size_t at = start + (there ? cell : begin) * stride;
    float key[8];
    float value[8];
    read(keys + at, key);
    read(values + at, value);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      float score = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        score += query[h][i] * key[i];
      }
#pragma unroll
      for (int other = LANES / 2; other > 0; other /= 2) {
        score += __shfl_xor_sync(0xffffffff, score, other);
      }
      if (there) {
        const float higher = fmaxf(most[h], score);
        const float keep = exp2f(most[h] - higher);
        const float share = exp2f(score - higher);
        most[h] = higher;
        weight[h] = weight[h] * keep + share;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sum[h][i] = sum[h][i] * keep + share * value[i];
        }
      }
    }
  }

  __shared__ float sums[GROUPS][HEADS][D];
  __shared__ float tops[GROUPS][HEADS];
  __shared__ float weights[GROUPS][HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    if (lane == 0) {
      tops[group][h] = most[h];
      weights[group][h] = weight[h];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sums[group][h][lane * 8 + i] = sum[h][i];
    }
  }
  __syncthreads();
  for (int index = threadIdx.x; index < HEADS * D; index += THREADS) {
    const int h = index / D;
    const int d = index % D;
    // The first group always has a cell, so this is a number.
    float top = tops[0][h];
#pragma unroll
    for (int g = 1; g < GROUPS; ++g) {
      top = fmaxf(top, tops[g][h]);
    }
    float all = 0;
    float total = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      const float factor = exp2f(tops[g][h] - top);
      all += weights[g][h] * factor;
      total += sums[g][h][d] * factor;
    }
    const size_t place =
        (static_cast<size_t>(row) * heads + first_head + h) * parts + part;
    partial[place * D + d] = total / all;
    if (d == 0) {
      told[place * 2] = top;
      told[place * 2 + 1] = all;
    }
  }
"""

_WHOLE = """
  // partial [B, heads, parts, D] and told [B, heads, parts, 2] -> out [B, heads, D].
  const int row = blockIdx.y;
  const int head = blockIdx.x;
  const int d = threadIdx.x;
  const int heads = gridDim.x;
  const int rows = gridDim.y;
  const int parts = partial_shape[2];
  const int mine = (spans[rows + row] + STRETCH - 1) / STRETCH;
  const size_t place = (static_cast<size_t>(row) * heads + head) * parts;
  float top = -INFINITY;
  for (int part = 0; part < mine; ++part) {
    top = fmaxf(top, told[(place + part) * 2]);
  }
  float all = 0;
  float total = 0;
  for (int part = 0; part < mine; ++part) {
    const float share =
        exp2f(told[(place + part) * 2] - top) * told[(place + part) * 2 + 1];
    all += share;
    total += share * partial[(place + part) * D + d];
  }
  out[(static_cast<size_t>(row) * heads + head) * D + d] =
      static_cast<T>(total / all);
"""


class Spans:
    """Where the rows of one step read: made once, used by every layer."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        """`spans` are the first cell and the one past the last, of each row."""
        firsts = [start for start, _ in spans]
        lengths = [end - start for start, end in spans]
        self.array = mx.array([firsts, lengths], dtype=mx.int32)
        self.parts = -(-max(lengths) // _STRETCH)


def available() -> bool:
    """Whether the kernel can run on the device in use."""
    return on_cuda()


def fits(queries: mx.array, keys: mx.array, values: mx.array) -> bool:
    """Whether the kernel serves these; keys and values are `[cells, kv_heads, dim]`."""
    return (
        queries.shape[-1] in _DIMS
        and keys.shape == values.shape
        and keys.shape[-1] == queries.shape[-1]
        and queries.dtype == keys.dtype == values.dtype
    )


def attend(
    queries: mx.array, keys: mx.array, values: mx.array, spans: Spans, scale: float
) -> mx.array:
    """Queries `[B, heads, 1, dim]` over each row's own cells of one layer of the pool.

    Returns `[B, heads, 1, dim]`.
    """
    rows, heads, _, dim = queries.shape
    kv_heads = keys.shape[1]
    shared_by = heads // kv_heads
    taken = next(n for n in range(_MOST_HEADS, 0, -1) if shared_by % n == 0)
    parts_kernel, whole_kernel = _kernels()
    partial, told = parts_kernel(
        inputs=[queries, keys, values, spans.array, _scale(scale)],
        template=[
            ("T", queries.dtype),
            ("D", dim),
            ("HEADS", taken),
            ("SHARED_BY", shared_by),
            ("KV_HEADS", kv_heads),
            ("STRETCH", _STRETCH),
            ("THREADS", _THREADS),
        ],
        grid=(spans.parts * _THREADS, heads // taken, rows),
        threadgroup=(_THREADS, 1, 1),
        output_shapes=[(rows, heads, spans.parts, dim), (rows, heads, spans.parts, 2)],
        output_dtypes=[mx.float32, mx.float32],
    )
    (out,) = whole_kernel(
        inputs=[partial, told, spans.array],
        template=[("T", queries.dtype), ("D", dim), ("STRETCH", _STRETCH)],
        grid=(heads * dim, rows, 1),
        threadgroup=(dim, 1, 1),
        output_shapes=[(rows, heads, 1, dim)],
        output_dtypes=[queries.dtype],
    )
    result: mx.array = out
    return result


@cache
def _kernels() -> tuple[Any, Any]:
    return (
        mx.fast.cuda_kernel(
            name="ragged_parts",
            input_names=["queries", "keys", "values", "spans", "scale"],
            output_names=["partial", "told"],
            header=_HEADER,
            source=_PARTS,
        ),
        mx.fast.cuda_kernel(
            name="ragged_whole",
            input_names=["partial", "told", "spans"],
            output_names=["out"],
            header=_HEADER,
            source=_WHOLE,
        ),
    )


@cache
def _scale(scale: float) -> mx.array:
    return mx.array([scale], dtype=mx.float32)
