// What the project's CUDA kernels use of CUDA, for a compiler of the host.
//
// The threads of a block are fibers of one thread: each runs until it has to wait for
// others, so that one which should have waited runs far ahead and is found out. Blocks
// run one after the other, in whatever order is asked for.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

using std::max;
using std::min;

#define __device__
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
};

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}

namespace host {

constexpr int STACK = 1 << 16;
constexpr int MOST_BYTES = 64;

struct Fiber {
  ucontext_t first;  // Where it begins; a jump is faster from then on.
  jmp_buf at;
  std::unique_ptr<char[]> stack;
  dim3 thread;
  bool begun, done;
  int side;  // Of what it has posted last; see `post`.
};

static dim3 block, grid;
static std::vector<Fiber> fibers;
static Fiber* self;
static jmp_buf home;
static std::function<void()> body;
static long steps;

static void resume() {
  if (_setjmp(home)) {
    return;
  }
  if (self->begun) {
    _longjmp(self->at, 1);
  }
  self->begun = true;
  setcontext(&self->first);
}

static void rest() {
  if (!_setjmp(self->at)) {
    _longjmp(home, 1);
  }
}

struct Barrier {
  int wanted, here, round;

  void wait() {
    const int before = round;
    if (++here == wanted) {
      here = 0;
      ++round;
      ++steps;
      return;
    }
    while (round == before) {
      rest();
    }
  }
};

static Barrier whole;
static Barrier warps[32];
static unsigned char posted[2][1024][MOST_BYTES];

static void enter() {
  body();
  self->done = true;
  ++steps;
  rest();
}

// False when all threads wait for one that does not come.
static bool run_block(int threads, bool backwards) {
  fibers.resize(threads);
  whole = {threads, 0, 0};
  for (int warp = 0; warp < threads / 32; ++warp) {
    warps[warp] = {32, 0, 0};
  }
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    if (!fiber.stack) {
      fiber.stack.reset(new char[STACK]);
    }
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack.get();
    fiber.first.uc_stack.ss_size = STACK;
    fiber.thread = {unsigned(i), 0, 0};
    fiber.begun = fiber.done = false;
    fiber.side = 0;
    makecontext(&fiber.first, enter, 0);
  }
  for (;;) {
    const long before = steps;
    bool left = false;
    for (int i = 0; i < threads; ++i) {
      self = &fibers[backwards ? threads - 1 - i : i];
      if (!self->done) {
        left = true;
        resume();
      }
    }
    if (!left || steps == before) {
      return !left;
    }
  }
}

static bool launch(
    std::function<void()> kernel, dim3 wanted, int threads, const int* order,
    bool backwards) {
  body = kernel;
  grid = wanted;
  const int blocks = grid.x * grid.y * grid.z;
  for (int i = 0; i < blocks; ++i) {
    const unsigned at = order[i];
    block = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
    if (!run_block(threads, backwards)) {
      return false;
    }
  }
  return true;
}

// Shows a value to the warp, whose threads all come here. Two sides in turn: whoever
// writes to one again has waited for all to be done with it.
template <typename V>
void post(const V& value) {
  static_assert(sizeof(V) <= MOST_BYTES);
  const int thread = self->thread.x;
  self->side ^= 1;
  memcpy(posted[self->side][thread], &value, sizeof(V));
  warps[thread / 32].wait();
}

template <typename V>
V posted_by(int thread) {
  V value;
  memcpy(&value, posted[self->side][thread], sizeof(V));
  return value;
}

}  // namespace host

#define threadIdx (host::self->thread)
#define blockIdx (host::block)
#define gridDim (host::grid)

inline void __syncthreads() { host::whole.wait(); }
inline void __threadfence() {}

inline int atomicAdd(int* at, int by) {
  const int was = *at;
  *at += by;
  return was;
}

template <typename V>
V __ldcg(const V* at) {
  return *at;
}

template <typename V>
V __shfl_xor_sync(unsigned, V value, int other) {
  host::post(value);
  return host::posted_by<V>(host::self->thread.x ^ other);
}

inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const int from = selector >> (4 * i) & 7;
    out |= uint32_t(both >> (8 * from) & 255) << (8 * i);
  }
  return out;
}

struct __half {
  _Float16 value;
  __half() = default;
  explicit __half(float from) : value(from) {}
  operator float() const { return value; }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float from) {
    uint32_t whole;
    memcpy(&whole, &from, 4);
    // To the nearest, of two the even one.
    bits = from != from ? 0x7fff : (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
  }
  operator float() const {
    const uint32_t whole = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
  }
};

template <typename H>
struct Twice {
  H x, y;
};
using __half2 = Twice<__half>;
using __nv_bfloat162 = Twice<__nv_bfloat16>;

inline __half __float2half(float value) { return __half(value); }
inline __half2 __half2half2(__half value) { return {value, value}; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) {
  return {value, value};
}

template <typename H>
Twice<H> __hsub2(Twice<H> a, Twice<H> b) {
  return {H(float(a.x) - float(b.x)), H(float(a.y) - float(b.y))};
}

// Rounded once: a product of two such numbers is exact in a double.
template <typename H>
Twice<H> __hfma2(Twice<H> a, Twice<H> b, Twice<H> c) {
  return {
      H(double(float(a.x)) * float(b.x) + double(float(c.x))),
      H(double(float(a.y)) * float(b.y) + double(float(c.y)))};
}

// mma.m16n8k16.row.col: in which registers of which thread of the warp the elements
// are is laid down in the PTX manual.
template <typename H>
void multiply_tile(float* sum, const uint32_t* a, const uint32_t* b) {
  struct Registers {
    uint32_t a[4], b[2];
  } mine;
  memcpy(mine.a, a, sizeof(mine.a));
  memcpy(mine.b, b, sizeof(mine.b));
  host::post(mine);
  const int thread = host::self->thread.x;
  const int warp = thread / 32 * 32;
  auto number = [](uint32_t word, int k) {
    Twice<H> two;
    memcpy(&two, &word, 4);
    return float(k % 2 ? two.y : two.x);
  };
  for (int i = 0; i < 4; ++i) {
    const int row = thread % 32 / 4 + i / 2 * 8;
    const int column = thread % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int in_group = k % 8 / 2;
      auto left = host::posted_by<Registers>(warp + row % 8 * 4 + in_group);
      auto right = host::posted_by<Registers>(warp + column * 4 + in_group);
      sum[i] += number(left.a[row / 8 + k / 8 * 2], k) * number(right.b[k / 8], k);
    }
  }
}
