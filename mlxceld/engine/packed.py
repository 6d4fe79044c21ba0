"""A few rows times a matrix packed in 4 bits, for CUDA: the products of a decode step.

A decode step reads every weight once, whatever the number of its rows, so it should
take as long as the memory takes to give them. Here a block unpacks 16 lines of the
matrix and multiplies them with up to 32 rows in the tensor cores, its warps sharing the
columns out among themselves.

`mx.quantized_matmul` is the reference, and what serves wherever this does not: other
devices, widths and types, and prompts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx

from mlxceld.engine.attention import on_cuda

MOST_ROWS = 32
"""Rows that one block takes; their sums are in registers."""

_GROUPS = (32, 64, 128)
_LINES = 16
_WARPS = 8

_HEADER = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Two values of 4 bits, bits 0 to 3 of each half of a word, as two numbers: the bits
// are put under the exponent of a number whose last bit counts 1, which is taken off.
template <typename T>
struct Pair;

template <>
struct Pair<__half> {
  using Two = __half2;
  __device__ static Two unpack(uint32_t word) {
    word = (word & 0x000f000f) | 0x64006400;
    return __hsub2(reinterpret_cast<Two&>(word), __half2half2(__float2half(1024.f)));
  }
  __device__ static Two both(__half value) { return __half2half2(value); }
  __device__ static void multiply(float* sum, const uint32_t* a, const uint32_t* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <>
struct Pair<__nv_bfloat16> {
  using Two = __nv_bfloat162;
  __device__ static Two unpack(uint32_t word) {
    word = (word & 0x000f000f) | 0x43004300;
    return __hsub2(
        reinterpret_cast<Two&>(word), __bfloat162bfloat162(__float2bfloat16(128.f)));
  }
  __device__ static Two both(__nv_bfloat16 value) {
    return __bfloat162bfloat162(value);
  }
  __device__ static void multiply(float* sum, const uint32_t* a, const uint32_t* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <typename T>
__device__ inline uint32_t
weights_of(uint32_t word, typename Pair<T>::Two scale, typename Pair<T>::Two offset) {
  typename Pair<T>::Two two = __hfma2(Pair<T>::unpack(word), scale, offset);
  return reinterpret_cast<uint32_t&>(two);
}
"""

_SOURCE = """
  // x [rows, K]; weights [N, K / 8] of eight values each, scales and offsets
  // [N, K / GROUP]; out [rows, N]. TILES: rows in eights.
  using Two = typename Pair<T>::Two;
  const int rows = x_shape[0];
  const int columns = x_shape[1];
  const int lines = weights_shape[0];
  const int warp = threadIdx.x / 32;
  const int r = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int first = blockIdx.x * 16;
  // Lines past the end are read again and thrown away.
  const size_t upper = min(first + r, lines - 1);
  const size_t lower = min(first + r + 8, lines - 1);
  const size_t words = columns / 32;
  const size_t groups = columns / GROUP;
  const uint4* upper_weights = reinterpret_cast<const uint4*>(weights) + upper * words;
  const uint4* lower_weights = reinterpret_cast<const uint4*>(weights) + lower * words;

  float sum[TILES][4];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[tile][i] = 0;
    }
  }
  // A thread takes 32 columns of two lines. All go round equally often, since they
  // multiply together; what is past the end is zero.
#pragma unroll 2
  for (int base = warp * 128; base < columns; base += WARPS * 128) {
    const int k = base + t * 32;
    const bool there = k < columns;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const uint4 a = there ? upper_weights[k / 32] : none;
    const uint4 b = there ? lower_weights[k / 32] : none;
    const int group = there ? k / GROUP : 0;
    const Two a_scale = Pair<T>::both(scales[upper * groups + group]);
    const Two b_scale = Pair<T>::both(scales[lower * groups + group]);
    const Two a_offset = Pair<T>::both(offsets[upper * groups + group]);
    const Two b_offset = Pair<T>::both(offsets[lower * groups + group]);
    const uint32_t a_words[4] = {a.x, a.y, a.z, a.w};
    const uint32_t b_words[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // In a word the values 0 and 4, 1 and 5, 2 and 6, 3 and 7 are pairs; the order
      // of columns does not matter as long as both factors keep to it.
      uint32_t left[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t a_word = a_words[j] >> (8 * half);
        const uint32_t b_word = b_words[j] >> (8 * half);
        left[half][0] = weights_of<T>(a_word, a_scale, a_offset);
        left[half][1] = weights_of<T>(b_word, b_scale, b_offset);
        left[half][2] = weights_of<T>(a_word >> 4, a_scale, a_offset);
        left[half][3] = weights_of<T>(b_word >> 4, b_scale, b_offset);
      }
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const int row = tile * 8 + r;
        uint4 eight = none;
        if (there && row < rows) {
          eight = *reinterpret_cast<const uint4*>(
              x + static_cast<size_t>(row) * columns + k + j * 8);
        }
        const uint32_t right[2][2] = {
            {__byte_perm(eight.x, eight.z, 0x5410),
             __byte_perm(eight.x, eight.z, 0x7632)},
            {__byte_perm(eight.y, eight.w, 0x5410),
             __byte_perm(eight.y, eight.w, 0x7632)}};
        Pair<T>::multiply(sum[tile], left[0], right[0]);
        Pair<T>::multiply(sum[tile], left[1], right[1]);
      }
    }
  }

  __shared__ float sums[WARPS][TILES * 8][17];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[warp][tile * 8 + t * 2 + i % 2][r + i / 2 * 8] = sum[tile][i];
    }
  }
  __syncthreads();
  for (int index = threadIdx.x; index < TILES * 8 * 16; index += WARPS * 32) {
    const int row = index / 16;
    const int line = index % 16;
    float total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      total += sums[w][row][line];
    }
    if (row < rows && first + line < lines) {
      out[static_cast<size_t>(row) * lines + first + line] = static_cast<T>(total);
    }
  }
"""


@cache
def available() -> bool:
    """Whether the kernel can run: its instructions came with compute capability 8."""
    if not mx.cuda.is_available():
        return False
    major = mx.device_info(mx.Device(mx.gpu)).get("compute_capability_major", 0)
    return int(major) >= 8


def fits(
    x: mx.array,
    scales: mx.array,
    offsets: mx.array | None,
    *,
    group_size: int,
    bits: int,
    mode: str,
) -> bool:
    """Whether the kernel serves a product of `x [..., K]`, whatever the matrix."""
    return (
        bits == 4
        and mode == "affine"
        and group_size in _GROUPS
        and offsets is not None
        and x.size // x.shape[-1] <= MOST_ROWS
        and x.dtype in (mx.float16, mx.bfloat16)
        and x.dtype == scales.dtype == offsets.dtype
        and on_cuda()
        and available()
    )


def multiply(
    x: mx.array,
    weights: mx.array,
    scales: mx.array,
    offsets: mx.array,
    group_size: int,
) -> mx.array:
    """`x [..., K]` times packed `weights [N, K / 8]`, transposed: `[..., N]`.

    `scales` and `offsets` are `[N, K / group_size]`, as `mx.quantize` gives them.
    """
    *lead, columns = x.shape
    rows, lines = x.size // columns, weights.shape[0]
    tiles = -(-rows // 8)
    (out,) = _kernel()(
        inputs=[x.reshape(rows, columns), weights, scales, offsets],
        template=[
            ("T", x.dtype),
            ("GROUP", group_size),
            ("TILES", 4 if tiles == 3 else tiles),
            ("WARPS", _WARPS),
        ],
        grid=(-(-lines // _LINES) * _WARPS * 32, 1, 1),
        threadgroup=(_WARPS * 32, 1, 1),
        output_shapes=[(rows, lines)],
        output_dtypes=[x.dtype],
    )
    result: mx.array = out.reshape(*lead, lines)
    return result


@cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel(
        name="packed_rows",
        input_names=["x", "weights", "scales", "offsets"],
        output_names=["out"],
        header=_HEADER,
        source=_SOURCE,
    )
