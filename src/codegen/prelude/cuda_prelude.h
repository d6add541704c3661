// Base of every generated CUDA kernel: wide loads and stores of every storage type, functions, reductions over a group
// of threads, masks. It is compiled with each kernel, so it includes nothing; cuda_hardware.h precedes it. Over 500
// lines because it is one self-contained text. Test: tests/codegen/cuda_kernel_test.cpp
//
// A thread processes W neighbouring elements at a time. Elements are computed one by one, in unrolled loops, as F:
// float, or double if a tensor is double.
#pragma once

namespace mr {

using i32 = int;
using i64 = long long;

struct State {
  u64 seed;
  u32 step;
  u32 unused;
};

// The parameter of a kernel, passed by value.
template <int kTensors, int kValues, int kSubsequences>
struct Arguments {
  void* tensors[kTensors];
  double values[kValues];  // constants, scalars, and operators' parameters
  const State* state;
  char* scratch;
  u32 subsequences[kSubsequences];  // of dropouts
};

// --- Storage ---

MR_DEVICE float widened(float x) { return x; }
MR_DEVICE double widened(double x) { return x; }
MR_DEVICE float widened(u8 x) { return static_cast<float>(x); }
MR_DEVICE i32 widened(i32 x) { return x; }
MR_DEVICE i64 widened(i64 x) { return x; }
MR_DEVICE void narrow(float x, float& y) { y = x; }
MR_DEVICE void narrow(double x, double& y) { y = x; }
MR_DEVICE void narrow(float x, double& y) { y = x; }
MR_DEVICE void narrow(double x, float& y) { y = static_cast<float>(x); }
MR_DEVICE void narrow(double x, f16& y) { narrow(static_cast<float>(x), y); }
MR_DEVICE void narrow(double x, bf16& y) { narrow(static_cast<float>(x), y); }
template <class F>
MR_DEVICE void narrow(F x, u8& y) {
  y = x != F(0) ? 1 : 0;
}

template <class F>
MR_DEVICE void narrow(F x, i32& y) {
  y = static_cast<i32>(x);
}
template <class F>
MR_DEVICE void narrow(F x, i64& y) {
  y = static_cast<i64>(x);
}

template <int kBytes>
struct ChunkOf;
template <>
struct ChunkOf<16> {
  using Type = Chunk16;
};
template <>
struct ChunkOf<8> {
  using Type = Chunk8;
};
template <>
struct ChunkOf<4> {
  using Type = u32;
};
template <>
struct ChunkOf<2> {
  using Type = u16;
};
template <>
struct ChunkOf<1> {
  using Type = u8;
};

constexpr int least_of(int a, int b) { return a < b ? a : b; }

// W elements of a tensor, kStep apart in memory; a single one if kStep is 0. Addresses are aligned to kAlign bytes.
template <class T, int W, int kStep, int kAlign>
struct Elements {
  static constexpr int kCount = kStep == 0 ? 1 : W;
  static constexpr int kBytes = least_of(kCount * static_cast<int>(sizeof(T)), kAlign);
  using Chunk = typename ChunkOf<kBytes>::Type;
  static constexpr int kChunks = kCount * static_cast<int>(sizeof(T)) / kBytes;
  static constexpr bool kWide = kStep == 1 && kBytes > static_cast<int>(sizeof(T));

  union Data {
    T elements[kCount];
    Chunk chunks[kChunks];
  } data;

  template <class I>
  MR_DEVICE void load(const T* __restrict__ from, I at) {
    if constexpr (kWide) {
      MR_UNROLL
      for (int k = 0; k < kChunks; ++k) data.chunks[k] = reinterpret_cast<const Chunk*>(from + at)[k];
    } else {
      MR_UNROLL
      for (int k = 0; k < kCount; ++k) data.elements[k] = from[at + static_cast<I>(k) * kStep];
    }
  }
  // Loads the elements where the condition holds; a single element if it holds anywhere.
  template <class I, class Condition>
  MR_DEVICE void load_where(const T* __restrict__ from, I at, Condition condition) {
    MR_UNROLL
    for (int l = 0; l < W; ++l) {
      if (condition(l)) data.elements[kStep == 0 ? 0 : l] = from[at + static_cast<I>(l) * kStep];
    }
  }
  template <class I>
  MR_DEVICE void store(T* __restrict__ to, I at) const {
    if constexpr (kWide) {
      MR_UNROLL
      for (int k = 0; k < kChunks; ++k) reinterpret_cast<Chunk*>(to + at)[k] = data.chunks[k];
    } else {
      MR_UNROLL
      for (int k = 0; k < kCount; ++k) to[at + static_cast<I>(k) * kStep] = data.elements[k];
    }
  }
  template <class F>
  MR_DEVICE F get(int lane) const {
    return static_cast<F>(widened(data.elements[kStep == 0 ? 0 : lane]));
  }
  template <class F>
  MR_DEVICE void set(int lane, F x) {
    narrow(x, data.elements[kStep == 0 ? 0 : lane]);
  }
};

template <int W, int kStep, int kAlign, class T, class F, class I>
MR_DEVICE void store(T* to, I at, const F (&values)[W]) {
  Elements<T, W, kStep, kAlign> elements;
  MR_UNROLL
  for (int l = 0; l < (kStep == 0 ? 1 : W); ++l) elements.set(l, values[l]);
  elements.store(to, at);
}

// Stores the values where the condition holds.
template <int W, int kStep, int kAlign, class T, class F, class I, class Condition>
MR_DEVICE void store_where(T* to, I at, const F (&values)[W], Condition condition) {
  MR_UNROLL
  for (int l = 0; l < (kStep == 0 ? 1 : W); ++l) {
    if (condition(l)) narrow(values[l], to[at + static_cast<I>(l) * kStep]);
  }
}

template <class I>
MR_DEVICE bool is_inside(I position, long long extent) {
  return position >= 0 && position < extent;
}

// A tile of a tensor during a layout conversion. Rows are padded so that columns are in different banks.
constexpr int kTile = 64;
template <class T>
struct alignas(16) Tile {
  static constexpr int kRow = kTile + 16 / static_cast<int>(sizeof(T));
  T elements[kTile * kRow];
};

// Shared memory for wide accesses.
template <class F, int kCount>
struct alignas(16) Aligned {
  F elements[kCount];
};

// --- Functions ---

template <class E, class X>
MR_DEVICE E splat(X x) {
  return static_cast<E>(x);
}
template <class E>
MR_DEVICE E boolean(bool x) {
  return x ? E(1) : E(0);
}
template <class F>
MR_DEVICE F select(bool condition, F yes, F no) {
  return condition ? yes : no;
}
template <class E>
MR_DEVICE int position(int index) {
  return index;
}
// A position as a number.
template <class E, class I>
MR_DEVICE E number(I at) {
  return static_cast<E>(at);
}
// Propagates NaN, as NumPy does.
template <class F>
MR_DEVICE F larger(F a, F b) {
  return larger_of(a, b);
}
template <class F>
MR_DEVICE F smaller(F a, F b) {
  return smaller_of(a, b);
}
// An id as a number inside an axis of this extent.
template <class F>
MR_DEVICE F selected(long long extent, F id) {
  return smaller(larger(id, F(0)), static_cast<F>(extent - 1));
}
// The position that an id selects on an axis; ids outside are clamped.
template <class I, class F>
MR_DEVICE I position_of_id(long long extent, F id) {
  return id > F(0) ? (id < static_cast<F>(extent) ? static_cast<I>(id) : static_cast<I>(extent - 1)) : I(0);
}
// The element of a table at the position that an id selects on an axis of this stride and extent.
template <class F, class T, class I>
MR_DEVICE F gathered(const T* __restrict__ table, I at, I stride, long long extent, F id) {
  return static_cast<F>(widened(table[at + stride * position_of_id<I>(extent, id)]));
}
template <class F>
MR_DEVICE F absolute(F x) {
  return x < F(0) ? -x : x + F(0);
}
template <class F>
MR_DEVICE F exp(F x) {
  return exp_of(x);
}
MR_DEVICE float brief_exp(float x) { return brief_exp_of(x); }
template <class F>
MR_DEVICE F log(F x) {
  return log_of(x);
}
template <class F>
MR_DEVICE F sqrt(F x) {
  return root_of(x);
}
template <class F>
MR_DEVICE F tanh(F x) {
  return tanh_of(x);
}
template <class F>
MR_DEVICE F sin(F x) {
  return sin_of(x);
}
template <class F>
MR_DEVICE F cos(F x) {
  return cos_of(x);
}
template <class F>
MR_DEVICE F log1p(F x) {
  return log1p_of(x);
}
template <class F>
MR_DEVICE F expm1(F x) {
  return expm1_of(x);
}
template <class F>
MR_DEVICE F erf(F x) {
  return erf_of(x);
}
template <class F>
MR_DEVICE F sign(F x) {
  return x > F(0) ? F(1) : x < F(0) ? F(-1) : x;
}
template <class F>
MR_DEVICE F softplus(F a) {
  return larger(a, F(0)) + log1p(exp(-absolute(a)));
}
template <class F>
MR_DEVICE F power(F x, F exponent) {
  return power_of(x, exponent);
}
template <class F>
MR_DEVICE F normal_cdf(F a) {
  return F(0.5) * (F(1) + erf_of(a * F(0.70710678118654752440)));
}
template <class F>
MR_DEVICE F gelu(F a) {
  return a * normal_cdf(a);
}
template <class F>
MR_DEVICE F gelu_dx(F a, F g) {
  return g * (normal_cdf(a) + a * (exp(F(-0.5) * a * a) * F(0.39894228040143267794)));
}
template <class F>
MR_DEVICE F gelu_inner_tanh(F a) {
  return tanh(F(0.79788456080286535588) * (a + F(0.044715) * a * a * a));
}
template <class F>
MR_DEVICE F gelu_tanh(F a) {
  return F(0.5) * a * (F(1) + gelu_inner_tanh(a));
}
template <class F>
MR_DEVICE F gelu_tanh_dx(F a, F g) {
  const F t = gelu_inner_tanh(a);
  const F slope = F(0.79788456080286535588) * (F(1) + F(3 * 0.044715) * a * a);
  return g * F(0.5) * (F(1) + t + a * (F(1) - t * t) * slope);
}
template <class F>
MR_DEVICE F silu(F a) {
  return a / (F(1) + exp(-a));
}
template <class F>
MR_DEVICE F silu_dx(F a, F g) {
  const F s = F(1) / (F(1) + exp(-a));
  return g * s * (F(1) + a * (F(1) - s));
}

// --- Reductions ---

struct Sum {
  template <class F>
  static MR_DEVICE F of(F a, F b) {
    return a + b;
  }
};
struct Largest {
  template <class F>
  static MR_DEVICE F of(F a, F b) {
    return larger(a, b);
  }
};
struct Smallest {
  template <class F>
  static MR_DEVICE F of(F a, F b) {
    return smaller(a, b);
  }
};

constexpr int kWarp = 32;

// Reduces the values of kGroup neighbouring threads; every thread gets the result. All use the same order of operations
// and so get the same bits. In a group of several warps, put_warp writes the result of each warp to `slots` (one for
// each warp of the block), and gather_warps combines them after a barrier. Between two uses of the same slots there
// must be two barriers.
template <class Operation, int kGroup, class F>
MR_DEVICE F reduce_warp(F x) {
  MR_UNROLL
  for (int distance = least_of(kGroup, kWarp) / 2; distance > 0; distance /= 2)
    x = Operation::of(x, shuffle_xor(x, distance));
  return x;
}
template <class F>
MR_DEVICE void put_warp(F x, F* slots) {
  if (thread_number() % kWarp == 0) slots[thread_number() / kWarp] = x;
}
template <class Operation, int kGroup, class F>
MR_DEVICE F gather_warps(const F* slots) {
  constexpr int kWarps = kGroup / kWarp;
  const F* const own = slots + thread_number() / kGroup * kWarps;
  F x = own[0];
  MR_UNROLL
  for (int k = 1; k < kWarps; ++k) x = Operation::of(x, own[k]);
  return x;
}

// Groups of a block wait separately as long as there are enough named barriers; number 0 is the block's.
constexpr int kBarriers = 16;
template <int kGroup, int kGroups>
MR_DEVICE void group_barrier() {
  if constexpr (kGroups > 1 && kGroups < kBarriers) {
    named_barrier(1 + thread_number() / kGroup, kGroup);
  } else {
    barrier();
  }
}

// Reduces over threads that are kStride apart, W values each. `slots`: W for each partial result that shuffles do not
// reach.
template <int kGroup, int kStride>
constexpr int kPartialsApart = kStride < kWarp ? kGroup* kStride / kWarp : kGroup;
template <class Operation, int kGroup, int kStride, int W, class F>
MR_DEVICE void all_reduce_apart(F (&x)[W], F* slots) {
  MR_UNROLL
  for (int distance = kStride; distance < least_of(kGroup * kStride, kWarp); distance *= 2) {
    MR_UNROLL
    for (int l = 0; l < W; ++l) x[l] = Operation::of(x[l], shuffle_xor(x[l], distance));
  }
  constexpr int kPartials = kPartialsApart<kGroup, kStride>;
  if constexpr (kPartials > 1) {
    const int column = thread_number() % kStride;
    const int own = thread_number() / (kStride < kWarp ? kWarp : kStride);
    if (kStride >= kWarp || thread_number() % kWarp < kStride) {
      MR_UNROLL
      for (int l = 0; l < W; ++l) slots[(own * W + l) * kStride + column] = x[l];
    }
    barrier();
    MR_UNROLL
    for (int l = 0; l < W; ++l) {
      x[l] = slots[l * kStride + column];
      MR_UNROLL
      for (int k = 1; k < kPartials; ++k) x[l] = Operation::of(x[l], slots[(k * W + l) * kStride + column]);
    }
  }
}

// Reduces over threads that are kColumns apart, in a block of kThreads. The first kColumns threads get the results.
// `sums`: kColumns for each warp.
template <class Operation, int kThreads, int kColumns, class F>
MR_DEVICE F reduce_slices(F x, F* sums) {
  MR_UNROLL
  for (int distance = kColumns; distance < kWarp; distance *= 2) x = Operation::of(x, shuffle_xor(x, distance));
  const int column = thread_number() % kColumns;
  if (thread_number() % kWarp < kColumns) sums[thread_number() / kWarp * kColumns + column] = x;
  barrier();
  x = sums[column];
  MR_UNROLL
  for (int k = 1; k < kThreads / kWarp; ++k) x = Operation::of(x, sums[k * kColumns + column]);
  return x;
}

// --- Masks: reference/philox.h defines them ---

struct Dropout {
  u32 key0, key1, subsequence, step, threshold;
  double scale;

  // The host computes the threshold, in the upper half of a word, and 1/(1 - probability).
  MR_DEVICE Dropout(const State* state, u32 subsequence_number, double of_threshold, double of_scale)
      : key0(static_cast<u32>(state->seed)),
        key1(static_cast<u32>(state->seed >> 32)),
        subsequence(subsequence_number),
        step(state->step),
        threshold(static_cast<u32>(of_threshold)),
        scale(of_scale) {}
};

MR_DEVICE void philox(u64 block, const Dropout& d, u32 (&x)[4]) {
  x[0] = static_cast<u32>(block);
  x[1] = static_cast<u32>(block >> 32);
  x[2] = d.subsequence;
  x[3] = d.step;
  u32 k0 = d.key0;
  u32 k1 = d.key1;
  MR_UNROLL
  for (int round = 0; round < 7; ++round) {
    const u32 high0 = high_product(0xD2511F53u, x[0]);
    const u32 low0 = 0xD2511F53u * x[0];
    const u32 high1 = high_product(0xCD9E8D57u, x[2]);
    const u32 low1 = 0xCD9E8D57u * x[2];
    x[0] = high1 ^ x[1] ^ k0;
    x[1] = low1;
    x[2] = high0 ^ x[3] ^ k1;
    x[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// Draws the masks of W elements, kStep apart, from `element` on; also returns them as bits. kWhole: they are neighbours
// in one Philox block. Draws are compared in the upper half of a word, like the threshold.
template <int W, int kStep, bool kWhole, class F>
MR_DEVICE u32 draw(F (&mask)[W], u64 element, const Dropout& d) {
  const F scale = static_cast<F>(d.scale);
  u32 words[4];
  u32 bits = 0;
  if constexpr (kWhole) {
    philox(element / 8, d, words);
    if constexpr (W == 4) {
      words[0] = (element & 4) != 0 ? words[2] : words[0];
      words[1] = (element & 4) != 0 ? words[3] : words[1];
    }
    MR_UNROLL
    for (int l = 0; l < W; ++l) {
      const bool kept = (l % 2 == 0 ? words[l / 2] << 16 : words[l / 2]) >= d.threshold;
      mask[l] = kept ? scale : F(0);
      bits |= kept ? 1u << l : 0u;
    }
  } else {
    MR_UNROLL
    for (int l = 0; l < W; ++l) {
      const u64 e = element + static_cast<u64>(l) * kStep;
      philox(e / 8, d, words);
      const u32 even = (e & 4) != 0 ? words[2] : words[0];
      const u32 odd = (e & 4) != 0 ? words[3] : words[1];
      const u32 word = (e & 2) != 0 ? odd : even;
      const bool kept = ((e & 1) != 0 ? word : word << 16) >= d.threshold;
      mask[l] = kept ? scale : F(0);
      bits |= kept ? 1u << l : 0u;
    }
  }
  return bits;
}

// Masks stored as bits, one for each element; every run of kRun elements along the last axis starts at a byte. Bits of
// W elements, kStep apart. kWhole: they are neighbours in one byte, and runs fill their bytes.
template <int W, int kStep, u64 kRun, bool kWhole>
struct MaskBits {
  u32 bits;

  MR_DEVICE void load(const u8* __restrict__ from, u64 element) {
    if constexpr (kWhole) {
      bits = static_cast<u32>(from[element / 8]) >> (element % 8);
    } else {
      bits = 0;
      MR_UNROLL
      for (int l = 0; l < W; ++l) {
        const u64 e = element + static_cast<u64>(l) * kStep;
        const u64 in_run = e % kRun;
        bits |= ((static_cast<u32>(from[e / kRun * ((kRun + 7) / 8) + in_run / 8]) >> (in_run % 8)) & 1) << l;
      }
    }
  }
  template <class F>
  MR_DEVICE void unpack(F (&mask)[W], const Dropout& d) const {
    const F scale = static_cast<F>(d.scale);
    MR_UNROLL
    for (int l = 0; l < W; ++l) mask[l] = ((bits >> l) & 1) != 0 ? scale : F(0);
  }
  // For booleans.
  template <class F>
  MR_DEVICE void unpack(F (&booleans)[W]) const {
    MR_UNROLL
    for (int l = 0; l < W; ++l) booleans[l] = ((bits >> l) & 1) != 0 ? F(1) : F(0);
  }
};

// Eight booleans in a byte.
template <class F>
MR_DEVICE u8 packed(const F (&booleans)[8]) {
  u32 bits = 0;
  MR_UNROLL
  for (int l = 0; l < 8; ++l) bits |= booleans[l] != F(0) ? 1u << l : 0u;
  return static_cast<u8>(bits);
}

}  // namespace mr
