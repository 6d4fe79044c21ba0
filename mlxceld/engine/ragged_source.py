"""The CUDA source of the kernel of ragged.py, which says what it is for."""

HEADER = """
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

template <typename T>
__device__ inline void write(const T* from, const float* numbers, const T* to) {
  Eight<T> found = *reinterpret_cast<const Eight<T>*>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // What is no number stays out of the pool, as in pool.py.
    if (!(fabsf(numbers[i]) <= 3.402823466e38f)) {
      found.at[i] = static_cast<T>(0.0f);
    }
  }
  // The pool comes in as an input, which to MLX is constant.
  *reinterpret_cast<Eight<T>*>(const_cast<T*>(to)) = found;
}
"""

SOURCE = """
  // queries [B, heads, 1, D], new_keys and new_values [B, kv_heads, 1, D],
  // keys, values [cells, kv_heads, D]: the pool; spans [2, B]: first cells and lengths,
  // the new one included; scale [1]; stretch [1]; arrived [groups]: zeros.
  constexpr int LANES = D / 8;
  constexpr int GROUPS = THREADS / LANES;
  const int part = blockIdx.x;
  const int row = blockIdx.z;
  const int first_head = blockIdx.y * HEADS;
  const int rows = gridDim.z;
  const int parts = gridDim.x;
  const int heads = gridDim.y * HEADS;
  const int n = spans[rows + row];
  const int cells = stretch[0];
  const int begin = part * cells;
  if (begin >= n) {
    return;
  }
  const int end = min(n, begin + cells);
  const int lane = threadIdx.x % LANES;
  const int group = threadIdx.x / LANES;
  const int key_head = first_head / SHARED_BY;
  const bool writes = first_head % SHARED_BY == 0;
  const size_t stride = static_cast<size_t>(KV_HEADS) * D;
  const size_t start =
      static_cast<size_t>(spans[row]) * stride + key_head * D + lane * 8;
  const size_t fresh =
      (static_cast<size_t>(row) * KV_HEADS + key_head) * D + lane * 8;

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
    const bool newest = cell == n - 1;
    const size_t at = start + (there ? cell : begin) * stride;
    const T* key_from = newest ? new_keys + fresh : keys + at;
    const T* value_from = newest ? new_values + fresh : values + at;
    float key[8];
    float value[8];
    read(key_from, key);
    read(value_from, value);
    if (newest && writes) {
      write(key_from, key, keys + at);
      write(value_from, value, values + at);
    }
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
  const int mine = (n + cells - 1) / cells;
  const size_t first = static_cast<size_t>(row) * heads + first_head;
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
    if (mine == 1) {
      out[(first + h) * D + d] = static_cast<T>(total / all);
    } else {
      const size_t place = (first + h) * parts + part;
      partial[place * D + d] = total / all;
      if (d == 0) {
        told[place * 2] = top;
        told[place * 2 + 1] = all;
      }
    }
  }
  if (mine == 1) {
    return;
  }

  // Whoever comes last finds what all others have left.
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int* counter = const_cast<int*>(arrived) + row * gridDim.y + blockIdx.y;
    last = atomicAdd(counter, 1) == mine - 1;
    if (last) {
      *counter = 0;
    }
  }
  __syncthreads();
  if (!last) {
    return;
  }
  __threadfence();
  __shared__ float shares[HEADS][MOST_PARTS];
  for (int h = threadIdx.x / 32; h < HEADS; h += THREADS / 32) {
    const size_t place = (first + h) * parts;
    float top = -INFINITY;
    for (int p = threadIdx.x % 32; p < mine; p += 32) {
      top = fmaxf(top, __ldcg(told + (place + p) * 2));
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, other));
    }
    float all = 0;
    for (int p = threadIdx.x % 32; p < mine; p += 32) {
      const float share = exp2f(__ldcg(told + (place + p) * 2) - top) *
          __ldcg(told + (place + p) * 2 + 1);
      shares[h][p] = share;
      all += share;
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      all += __shfl_xor_sync(0xffffffff, all, other);
    }
    for (int p = threadIdx.x % 32; p < mine; p += 32) {
      shares[h][p] /= all;
    }
  }
  __syncthreads();
  for (int index = threadIdx.x; index < HEADS * D; index += THREADS) {
    const int h = index / D;
    const int d = index % D;
    const float* from = partial + (first + h) * parts * D + d;
    float total = 0;
#pragma unroll 8
    for (int p = 0; p < mine; ++p) {
      total += shares[h][p] * __ldcg(from + static_cast<size_t>(p) * D);
    }
    out[(first + h) * D + d] = static_cast<T>(total);
  }
"""
