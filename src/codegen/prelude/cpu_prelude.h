// What every generated CPU kernel stands on: vectors, loads and stores of every storage type, functions, masks. It is
// compiled once for each batch of kernels, by g++ or clang++, so it includes nothing.
//
// An element is a Vec<F> of neighbours, F being float or double; one number a row is an F, or a Vec<F> where the
// vector's lanes are rows. All functions exist for both. Lanes<N> says how many lanes of a vector are in use.
#pragma once

namespace mr {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using i32 = int;
using i64 = long;

// Half precisions are stored, never computed with.
struct bf16 {
  u16 bits;
};
#ifdef __aarch64__
using f16 = __fp16;
#else
using f16 = _Float16;
#endif

struct Arguments {
  void* const* tensors;
  const double* values;  // scalars, constants, and operators' parameters
  const u32* streams;    // of dropouts
  u64 seed;
  u32 step;
  char* scratch;
};

#define MR_INLINE inline __attribute__((always_inline))

constexpr int kBytes = 32;
template <class F>
struct Types;
template <>
struct Types<float> {
  typedef float Vec __attribute__((vector_size(kBytes)));
  typedef i32 Int __attribute__((vector_size(kBytes)));
};
template <>
struct Types<double> {
  typedef double Vec __attribute__((vector_size(kBytes)));
  typedef i64 Int __attribute__((vector_size(kBytes)));
};
template <class F>
using Vec = typename Types<F>::Vec;
template <class F>
constexpr int kLanes = kBytes / sizeof(F);

using VecF = Vec<float>;
using VecD = Vec<double>;

template <class V>
struct Of;
template <>
struct Of<float> {
  using F = float;
  using Int = i64;
};
template <>
struct Of<double> {
  using F = double;
  using Int = i64;
};
template <>
struct Of<VecF> {
  using F = float;
  using Int = Types<float>::Int;
};
template <>
struct Of<VecD> {
  using F = double;
  using Int = Types<double>::Int;
};

template <int N>
struct Lanes {
  static constexpr int n = N;
};

// --- Numbers to vectors and back ---

template <class V>
MR_INLINE V splat(typename Of<V>::F x) {
  if constexpr (sizeof(V) == sizeof(x)) {
    return x;
  } else {
    return V{} + x;
  }
}
template <class V>
requires(sizeof(V) == kBytes) MR_INLINE V splat(V x) { return x; }

// Positions along an index: of all lanes alike, or one behind the other.
template <class V>
MR_INLINE typename Of<V>::Int position(i64 i) {
  using Int = typename Of<V>::Int;
  if constexpr (sizeof(V) == kBytes) {
    return Int{} + static_cast<decltype(Int{}[0] + 0)>(i);
  } else {
    return i;
  }
}
template <class V>
MR_INLINE typename Of<V>::Int positions(i64 i) {
  using Int = typename Of<V>::Int;
  Int x = position<V>(i);
  for (int l = 0; l < kBytes / int(sizeof(x[0])); ++l) x[l] += l;
  return x;
}

// --- Storage ---

MR_INLINE float widen(float x) { return x; }
MR_INLINE double widen(double x) { return x; }
MR_INLINE float widen(f16 x) { return float(x); }
MR_INLINE float widen(u8 x) { return float(x); }
MR_INLINE float widen(bf16 x) { return __builtin_bit_cast(float, u32(x.bits) << 16); }

template <class T>
MR_INLINE T narrow(double x) {
  return T(x);
}
template <class T>
MR_INLINE T narrow(float x) {
  return T(x);
}
template <>
MR_INLINE bf16 narrow<bf16>(float x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  if (x != x) return {u16((bits >> 16) | 64)};
  return {u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
template <>
MR_INLINE bf16 narrow<bf16>(double x) {
  return narrow<bf16>(float(x));
}
template <>
MR_INLINE u8 narrow<u8>(float x) {
  return x != 0;
}
template <>
MR_INLINE u8 narrow<u8>(double x) {
  return x != 0;
}

// The lanes in use from memory, `Step` elements apart; the others are one, which every function takes.
template <class V, class L, long Step, class T>
MR_INLINE V load(const T* p) {
  using F = typename Of<V>::F;
  if constexpr (sizeof(V) == sizeof(F)) {
    return F(widen(*p));
  } else if constexpr (Step == 0) {
    return splat<V>(F(widen(*p)));
  } else {
    V x = splat<V>(F(1));
    if constexpr (Step == 1 && L::n * sizeof(F) == sizeof(V) && __is_same(T, F)) {
      __builtin_memcpy(&x, p, sizeof(V));
    } else {
      for (int l = 0; l < L::n; ++l) x[l] = F(widen(p[l * Step]));
    }
    return x;
  }
}

template <class L, long Step, class T, class V>
MR_INLINE void store(T* p, V x) {
  using F = typename Of<V>::F;
  if constexpr (sizeof(V) == sizeof(F)) {
    *p = narrow<T>(x);
  } else if constexpr (Step == 1 && L::n * sizeof(F) == sizeof(V) && __is_same(T, F)) {
    __builtin_memcpy(p, &x, sizeof(V));
  } else {
    for (int l = 0; l < L::n; ++l) p[l * Step] = narrow<T>(F(x[l]));
  }
}

// --- Choices ---

template <class C, class V>
MR_INLINE V select(C condition, V yes, V no) {
  if constexpr (sizeof(C) == kBytes) {
    return condition ? yes : no;
  } else {
    return condition ? yes : no;
  }
}
template <class V, class C>
MR_INLINE V boolean(C condition) {
  return select(condition, splat<V>(1), splat<V>(0));
}
// The maximum; of equals the first, and a NaN if there is one.
template <class V>
MR_INLINE V larger(V a, V b) {
  return select((a < b) | (b != b), b, a);
}
template <class V>
MR_INLINE V smaller(V a, V b) {
  return select((b < a) | (b != b), b, a);
}

// --- Reductions ---

struct Sum {
  template <class V>
  static MR_INLINE V of(V a, V b) {
    return a + b;
  }
};
struct Largest {
  template <class V>
  static MR_INLINE V of(V a, V b) {
    return larger(a, b);
  }
};
struct Smallest {
  template <class V>
  static MR_INLINE V of(V a, V b) {
    return smaller(a, b);
  }
};

// Only the lanes in use take part.
template <class Operation, class L, class V, class X>
MR_INLINE void accumulate(V& total, X x) {
  if constexpr (sizeof(X) != kBytes) {
    total[0] = Operation::of(total[0], x);
  } else if constexpr (L::n * sizeof(x[0]) == kBytes) {
    total = Operation::of(total, x);
  } else {
    for (int l = 0; l < L::n; ++l) total[l] = Operation::of(typename Of<V>::F(total[l]), typename Of<V>::F(x[l]));
  }
}
template <class Operation, class L, class F, class V>
MR_INLINE void accumulate_at(F* to, V x) {
  V total = load<V, L, 1>(to);
  accumulate<Operation, L>(total, x);
  store<L, 1>(to, total);
}
template <class Operation, class L, class V>
MR_INLINE typename Of<V>::F combine(V x) {
  if constexpr (sizeof(V) != kBytes) {
    return x;
  } else {
    using F = typename Of<V>::F;
    F total = x[0];
    for (int l = 1; l < L::n; ++l) total = Operation::of(total, F(x[l]));
    return total;
  }
}

// --- Functions: of float by polynomials fitted for it, right to two ulp; the rest by the library, a lane at a time ---

template <class V, class Function>
MR_INLINE V by_lane(V x, Function f) {
  if constexpr (sizeof(V) == kBytes) {
    for (int l = 0; l < kBytes / int(sizeof(x[0])); ++l) x[l] = f(x[l]);
    return x;
  } else {
    return f(x);
  }
}

template <class V>
MR_INLINE V absolute(V x) {
  return select(x < splat<V>(0), -x, x + splat<V>(0));
}
template <class V>
MR_INLINE V sqrt(V x) {
  return by_lane(x, [](auto lane) { return decltype(lane)(__builtin_sqrt(lane)); });
}
template <>
MR_INLINE VecF sqrt(VecF x) {
  return by_lane(x, [](float lane) { return __builtin_sqrtf(lane); });
}
template <class V>
MR_INLINE V log(V x) {
  return by_lane(x, [](auto lane) { return decltype(lane)(__builtin_log(lane)); });
}
template <class V>
MR_INLINE V power(V x, typename Of<V>::F exponent) {
  return by_lane(x, [exponent](auto lane) { return decltype(lane)(__builtin_pow(lane, exponent)); });
}
template <class V>
MR_INLINE V exp(V x) {
  return by_lane(x, [](auto lane) { return decltype(lane)(__builtin_exp(lane)); });
}
template <class V>
MR_INLINE V tanh(V x) {
  return by_lane(x, [](auto lane) { return decltype(lane)(__builtin_tanh(lane)); });
}
template <class V>
MR_INLINE V erf(V x) {
  return by_lane(x, [](auto lane) { return decltype(lane)(__builtin_erf(lane)); });
}

// exp(x) = 2^n · exp(r), |r| at most half of log 2; the power of two in two factors, since n may leave float's range.
template <>
MR_INLINE VecF exp(VecF x) {
  using Int = Types<float>::Int;
  const VecF low = splat<VecF>(-104.0f);
  const VecF high = splat<VecF>(89.0f);
  x = select(x > high, high, x);
  x = select(x < low, low, x);
  const float to_integer = 12582912.0f;  // 1.5 · 2^23: adding it leaves no bits behind the point
  const VecF n = (x * 1.44269504088896341f + to_integer) - to_integer;
  VecF r = x - n * 0.693359375f;
  r = r - n * -2.12194440054690583e-4f;
  VecF p = 0.00019919378974009305f * r + 0.0013947224942967296f;
  p = p * r + 0.008333262987434864f;
  p = p * r + 0.04166625440120697f;
  p = p * r + 0.1666666716337204f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const Int whole = __builtin_convertvector(n, Int);
  const Int half = whole >> 1;
  const VecF one = __builtin_bit_cast(VecF, (half + 127) << 23);
  const VecF other = __builtin_bit_cast(VecF, (whole - half + 127) << 23);
  return p * one * other;
}
template <>
MR_INLINE VecF tanh(VecF x) {
  const VecF z = x * x;
  VecF p = -0.005717036779969931f * z + 0.020650578662753105f;
  p = p * z + -0.05374349653720856f;
  p = p * z + 0.13331490755081177f;
  p = p * z + -0.3333328366279602f;
  const VecF small = p * z * x + x;
  const VecF magnitude = absolute(x);
  const VecF large = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return select(magnitude < splat<VecF>(0.625f), small, select(x < splat<VecF>(0), -large, large));
}
template <>
MR_INLINE VecF erf(VecF x) {
  const VecF z = x * x;
  VecF p = 7.853857823647559e-05f * z + -0.0008010192541405559f;
  p = p * z + 0.005188327748328447f;
  p = p * z + -0.026853810995817184f;
  p = p * z + 0.1128358542919159f;
  p = p * z + -0.3761262595653534f;
  p = p * z + 1.1283791065216064f;
  const VecF small = p * x;
  const VecF magnitude = select(absolute(x) > splat<VecF>(4.0f), splat<VecF>(4.0f), absolute(x));
  const VecF m = magnitude;
  VecF q = 0.00010684288281481713f * m + -0.0019117965130135417f;
  q = q * m + 0.015302252024412155f;
  q = q * m + -0.07275912910699844f;
  q = q * m + 0.2305707037448883f;
  q = q * m + -0.5188602805137634f;
  q = q * m + 0.8627207279205322f;
  q = q * m + -1.07984459400177f;
  q = q * m + 0.9922588467597961f;
  const VecF large = 1.0f - q * exp(-m * m);
  const VecF signed_large = select(x < splat<VecF>(0), -large, large);
  return select(absolute(x) < splat<VecF>(1), small, select(x != x, x, signed_large));
}
MR_INLINE float exp(float x) { return __builtin_expf(x); }
MR_INLINE float tanh(float x) { return __builtin_tanhf(x); }
MR_INLINE float erf(float x) { return __builtin_erff(x); }
MR_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }

template <class V>
MR_INLINE V normal_cdf(V a) {
  using F = typename Of<V>::F;
  return F(0.5) * (F(1) + erf(a * F(0.70710678118654752440)));
}
template <class V>
MR_INLINE V gelu(V a) {
  return a * normal_cdf(a);
}
template <class V>
MR_INLINE V gelu_dx(V a, V g) {
  using F = typename Of<V>::F;
  return g * (normal_cdf(a) + a * (exp(F(-0.5) * a * a) * F(0.39894228040143267794)));
}
template <class V>
MR_INLINE V gelu_inner_tanh(V a) {
  using F = typename Of<V>::F;
  return tanh(F(0.79788456080286535588) * (a + F(0.044715) * a * a * a));
}
template <class V>
MR_INLINE V gelu_tanh(V a) {
  using F = typename Of<V>::F;
  return F(0.5) * a * (F(1) + gelu_inner_tanh(a));
}
template <class V>
MR_INLINE V gelu_tanh_dx(V a, V g) {
  using F = typename Of<V>::F;
  const V t = gelu_inner_tanh(a);
  const V slope = F(0.79788456080286535588) * (F(1) + F(3 * 0.044715) * a * a);
  return g * F(0.5) * (F(1) + t + a * (F(1) - t * t) * slope);
}
template <class V>
MR_INLINE V silu(V a) {
  using F = typename Of<V>::F;
  return a / (F(1) + exp(-a));
}
template <class V>
MR_INLINE V silu_dx(V a, V g) {
  using F = typename Of<V>::F;
  const V s = F(1) / (F(1) + exp(-a));
  return g * s * (F(1) + a * (F(1) - s));
}

// --- Masks: reference/philox.h says which ---

struct Dropout {
  u32 key0, key1, stream, step;
  u64 threshold;
  double scale;

  Dropout(const Arguments* a, u32 of_stream, double probability)
      : key0(u32(a->seed)),
        key1(u32(a->seed >> 32)),
        stream(of_stream),
        step(a->step),
        threshold(u64(probability * 4294967296.0)),
        scale(1.0 / (1.0 - probability)) {}
};

#define MR_PHILOX_ROUND(k0, k1)               \
  {                                           \
    const u64 p0 = u64(0xD2511F53u) * x0;     \
    const u64 p1 = u64(0xCD9E8D57u) * x2;     \
    const u32 y0 = u32(p1 >> 32) ^ x1 ^ (k0); \
    const u32 y2 = u32(p0 >> 32) ^ x3 ^ (k1); \
    x1 = u32(p1);                             \
    x3 = u32(p0);                             \
    x0 = y0;                                  \
    x2 = y2;                                  \
  }
#define MR_PHILOX                                             \
  MR_PHILOX_ROUND(k0, k1)                                     \
  MR_PHILOX_ROUND(k0 + 0x9E3779B9u, k1 + 0xBB67AE85u)         \
  MR_PHILOX_ROUND(k0 + 2 * 0x9E3779B9u, k1 + 2 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 3 * 0x9E3779B9u, k1 + 3 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 4 * 0x9E3779B9u, k1 + 4 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 5 * 0x9E3779B9u, k1 + 5 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 6 * 0x9E3779B9u, k1 + 6 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 7 * 0x9E3779B9u, k1 + 7 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 8 * 0x9E3779B9u, k1 + 8 * 0xBB67AE85u) \
  MR_PHILOX_ROUND(k0 + 9 * 0x9E3779B9u, k1 + 9 * 0xBB67AE85u)

// The masks of `n` elements, `step` apart, from `element` on.
template <class F>
__attribute__((noinline)) static void draw(F* __restrict out, u64 element, u64 step, i64 n, const Dropout& d) {
  const u32 k0 = d.key0;
  const u32 k1 = d.key1;
  const F scale = F(d.scale);
  const u32 threshold = u32(d.threshold);
  i64 done = 0;
  if (step == 1 && element % 4 == 0) {
    constexpr int kBlocks = 16;
    while (n - done >= 4 * kBlocks && u32((element + u64(done)) / 4) <= 0xffffffffu - kBlocks) {
      const u64 block = (element + u64(done)) / 4;
      const u32 low = u32(block);
      const u32 high = u32(block >> 32);
      F* __restrict to = out + done;
#pragma omp simd
      for (u32 l = 0; l < kBlocks; ++l) {
        u32 x0 = low + l;
        u32 x1 = high;
        u32 x2 = d.stream;
        u32 x3 = d.step;
        MR_PHILOX
        to[4 * l] = x0 >= threshold ? scale : F(0);
        to[4 * l + 1] = x1 >= threshold ? scale : F(0);
        to[4 * l + 2] = x2 >= threshold ? scale : F(0);
        to[4 * l + 3] = x3 >= threshold ? scale : F(0);
      }
      done += 4 * kBlocks;
    }
  }
#pragma omp simd
  for (i64 l = done; l < n; ++l) {
    const u64 e = element + u64(l) * step;
    u32 x0 = u32(e / 4);
    u32 x1 = u32(e / 4 >> 32);
    u32 x2 = d.stream;
    u32 x3 = d.step;
    MR_PHILOX
    const u32 low = (e & 1) ? x1 : x0;
    const u32 high = (e & 1) ? x3 : x2;
    out[l] = ((e & 2) ? high : low) >= threshold ? scale : F(0);
  }
}

template <class F>
static void pack_bits(u8* __restrict to, const F* __restrict mask, i64 n) {
  for (i64 byte = 0; byte < (n + 7) / 8; ++byte) {
    u32 bits = 0;
    for (i64 k = 0; k < 8 && byte * 8 + k < n; ++k) bits |= u32(mask[byte * 8 + k] != 0) << k;
    to[byte] = u8(bits);
  }
}

template <class F>
static void unpack_bits(F* __restrict mask, const u8* __restrict from, i64 n, const Dropout& d) {
  const F scale = F(d.scale);
  for (i64 k = 0; k < n; ++k) mask[k] = ((from[k / 8] >> (k % 8)) & 1) ? scale : F(0);
}

}  // namespace mr

extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
