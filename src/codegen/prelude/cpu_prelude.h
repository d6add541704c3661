// Base of every generated CPU kernel: vectors, loads and stores of every storage type, functions, masks. It is compiled
// once for each batch of kernels, by g++ or clang++, so it includes nothing. Over 500 lines because it is one
// self-contained text.
// Test: tests/codegen/cpu_kernel_test.cpp
//
// Values of an element are a Vec<F> of neighbours, F being float or double. Values of a row are an F, or a Vec<F> if
// the lanes are rows. All functions exist for both. Lanes<N> says how many lanes of a vector are in use.
#pragma once

namespace mr {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using i32 = int;
using i64 = long;

// Half-precision types are for storage only.
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
  const double* values;     // scalars, constants, and operators' parameters
  const u32* subsequences;  // of dropouts
  u64 seed;
  u32 step;
  char* scratch;
};

#define MR_INLINE inline __attribute__((always_inline))

MR_INLINE float infinity() { return __builtin_inff(); }

// A vector is a cache line: several registers, which also hides latencies. The compilers' vector types are used in
// register size only: they scalarize comparisons of larger ones.
constexpr int kBytes = 64;
#if defined(__AVX512F__)
constexpr int kRegister = 64;
#elif defined(__AVX__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif
constexpr int kRegisters = kBytes / kRegister;

template <class F>
struct Types;
template <>
struct Types<float> {
  typedef float Register __attribute__((vector_size(kRegister)));
  typedef i32 Integers __attribute__((vector_size(kRegister)));
  using Integer = i32;
};
template <>
struct Types<double> {
  typedef double Register __attribute__((vector_size(kRegister)));
  typedef i64 Integers __attribute__((vector_size(kRegister)));
  using Integer = i64;
};

template <class F>
constexpr int kLanes = kBytes / sizeof(F);

template <class F>
struct Vec {
  typename Types<F>::Register registers[kRegisters];
};
// Integers of the same size: positions, and results of comparisons.
template <class F>
struct Int {
  typename Types<F>::Integers registers[kRegisters];
};

using VecF = Vec<float>;

template <class V>
struct Traits {
  using F = V;
  using Positions = i64;
  static constexpr bool vector = false;
};
template <class Real>
struct Traits<Vec<Real>> {
  using F = Real;
  using Positions = Int<Real>;
  static constexpr bool vector = true;
};

template <int N>
struct Lanes {
  static constexpr int n = N;
};
template <class L, class F>
constexpr bool kFull = L::n == kLanes<F>;

#define MR_EACH for (int r = 0; r < kRegisters; ++r)
#define MR_BINARY(op)                                          \
  template <class F>                                           \
  MR_INLINE Vec<F> operator op(Vec<F> a, Vec<F> b) {           \
    MR_EACH a.registers[r] = a.registers[r] op b.registers[r]; \
    return a;                                                  \
  }                                                            \
  template <class F>                                           \
  MR_INLINE Vec<F> operator op(Vec<F> a, F b) {                \
    MR_EACH a.registers[r] = a.registers[r] op b;              \
    return a;                                                  \
  }                                                            \
  template <class F>                                           \
  MR_INLINE Vec<F> operator op(F a, Vec<F> b) {                \
    MR_EACH b.registers[r] = a op b.registers[r];              \
    return b;                                                  \
  }
MR_BINARY(+)
MR_BINARY(-)
MR_BINARY(*)
MR_BINARY(/)

#define MR_COMPARISON(op)                                      \
  template <class F>                                           \
  MR_INLINE Int<F> operator op(Vec<F> a, Vec<F> b) {           \
    Int<F> y;                                                  \
    MR_EACH y.registers[r] = a.registers[r] op b.registers[r]; \
    return y;                                                  \
  }                                                            \
  template <class F>                                           \
  MR_INLINE Int<F> operator op(Int<F> a, Int<F> b) {           \
    Int<F> y;                                                  \
    MR_EACH y.registers[r] = a.registers[r] op b.registers[r]; \
    return y;                                                  \
  }
MR_COMPARISON(<)
MR_COMPARISON(<=)
MR_COMPARISON(>)
MR_COMPARISON(==)
MR_COMPARISON(!=)

template <class F>
MR_INLINE Vec<F> operator-(Vec<F> a) {
  MR_EACH a.registers[r] = -a.registers[r];
  return a;
}
template <class F>
MR_INLINE Int<F> operator|(Int<F> a, Int<F> b) {
  MR_EACH a.registers[r] |= b.registers[r];
  return a;
}
template <class F>
MR_INLINE Int<F> operator&(Int<F> a, Int<F> b) {
  MR_EACH a.registers[r] &= b.registers[r];
  return a;
}

// --- Scalars to vectors and back ---

template <class F>
MR_INLINE Vec<F> from_lanes(const F* lanes) {
  Vec<F> x;
  __builtin_memcpy(&x, lanes, kBytes);
  return x;
}
template <class F>
MR_INLINE void to_lanes(F* lanes, Vec<F> x) {
  __builtin_memcpy(lanes, &x, kBytes);
}

template <class V>
MR_INLINE V splat(typename Traits<V>::F x) {
  if constexpr (Traits<V>::vector) {
    V y;
    MR_EACH y.registers[r] = decltype(y.registers[0] + x){} + x;
    return y;
  } else {
    return x;
  }
}
template <class V>
requires Traits<V>::vector MR_INLINE V splat(V x) { return x; }

// Positions along an index: position(i) is i in every lane, positions(i) is i, i + 1, ...
template <class V>
MR_INLINE typename Traits<V>::Positions position(i64 i) {
  if constexpr (Traits<V>::vector) {
    using Integer = typename Types<typename Traits<V>::F>::Integer;
    typename Traits<V>::Positions x;
    MR_EACH x.registers[r] = decltype(x.registers[0] + 0){} + Integer(i);
    return x;
  } else {
    return i;
  }
}
template <class V>
MR_INLINE typename Traits<V>::Positions positions(i64 i) {
  using Integer = typename Types<typename Traits<V>::F>::Integer;
  Integer lanes[kLanes<typename Traits<V>::F>];
  for (int l = 0; l < kLanes<typename Traits<V>::F>; ++l) lanes[l] = Integer(i + l);
  typename Traits<V>::Positions x;
  __builtin_memcpy(&x, lanes, kBytes);
  return x;
}

// A position as a number.
template <class V>
MR_INLINE V number(typename Traits<V>::Positions at) {
  using F = typename Traits<V>::F;
  if constexpr (Traits<V>::vector) {
    V y;
    MR_EACH y.registers[r] = __builtin_convertvector(at.registers[r], typename Types<F>::Register);
    return y;
  } else {
    return F(at);
  }
}

// --- Storage ---

MR_INLINE float widen(float x) { return x; }
MR_INLINE double widen(double x) { return x; }
MR_INLINE float widen(f16 x) { return float(x); }
MR_INLINE float widen(u8 x) { return float(x); }
MR_INLINE i32 widen(i32 x) { return x; }
MR_INLINE i64 widen(i64 x) { return x; }
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

// --- Registers of half-precision numbers: instructions that g++ 12 does not choose by itself. Same bits as above. ---

using FloatRegister = Types<float>::Register;
typedef u16 HalfRegister __attribute__((vector_size(kRegister / 2)));

#if defined(__AVX2__) && defined(__F16C__)
MR_INLINE FloatRegister widen_register(HalfRegister x, f16) {
  FloatRegister y;
  __asm__("vcvtph2ps %1, %0" : "=v"(y) : "v"(x));
  return y;
}
MR_INLINE FloatRegister widen_register(HalfRegister x, bf16) {
  Types<float>::Integers y;
  __asm__("vpmovzxwd %1, %0" : "=v"(y) : "v"(x));
  return FloatRegister(y << 16);
}
MR_INLINE HalfRegister narrow_register(FloatRegister x, f16) {
  HalfRegister y;
  __asm__("vcvtps2ph $0, %1, %0" : "=v"(y) : "v"(x));
  return y;
}
template <class T>
constexpr bool kWidensRegisters = __is_same(T, f16) || __is_same(T, bf16);
#else
template <class T>
constexpr bool kWidensRegisters = false;
#endif

#if defined(__AVX512BF16__)
// The instruction flushes denormal numbers, which narrow() rounds. They are found as integers, because comparisons of
// floats may flush them too.
MR_INLINE HalfRegister narrow_register(FloatRegister x, bf16) {
  HalfRegister y;
  u16 denormals;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(y) : "v"(x));
  const Types<float>::Integers bits = Types<float>::Integers(x);
  const Types<float>::Integers twice_less_one = bits + bits - 1;  // below 0xffffff as unsigned: denormal, and not zero
  __asm__("vpcmpud $1, %2, %1, %0" : "=k"(denormals) : "v"(twice_less_one), "v"(Types<float>::Integers{} + 0xffffff));
  if (__builtin_expect(denormals != 0, 0)) {
    for (int l = 0; l < 16; ++l) y[l] = narrow<bf16>(x[l]).bits;
  }
  return y;
}
template <class T>
constexpr bool kNarrowsRegisters = kWidensRegisters<T>;
#elif defined(__AVX512F__)
MR_INLINE HalfRegister narrow_register(FloatRegister x, bf16) {
  const Types<float>::Integers bits = Types<float>::Integers(x);
  const Types<float>::Integers rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Types<float>::Integers chosen = x != x ? (bits >> 16) | 64 : rounded;
  HalfRegister y;
  __asm__("vpmovdw %1, %0" : "=v"(y) : "v"(chosen));
  return y;
}
template <class T>
constexpr bool kNarrowsRegisters = kWidensRegisters<T>;
#else
template <class T>
constexpr bool kNarrowsRegisters = kWidensRegisters<T>&& __is_same(T, f16);
#endif

// Loads the lanes in use, `Step` elements apart. The others become 1, which is in the domain of every function.
template <class V, class L, long Step, class T>
MR_INLINE V load(const T* p) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    return F(widen(*p));
  } else if constexpr (Step == 0) {
    return splat<V>(F(widen(*p)));
  } else if constexpr (Step == 1 && kFull<L, F> && __is_same(T, F)) {
    return from_lanes(p);
  } else if constexpr (Step == 1 && kFull<L, F> && __is_same(F, float) && kWidensRegisters<T>) {
    V x;
    MR_EACH {
      HalfRegister halves;
      __builtin_memcpy(&halves, p + r * (kRegister / 4), kRegister / 2);
      x.registers[r] = widen_register(halves, T{});
    }
    return x;
  } else {
    F lanes[kLanes<F>];
    for (int l = 0; l < L::n; ++l) lanes[l] = F(widen(p[l * Step]));
    for (int l = L::n; l < kLanes<F>; ++l) lanes[l] = F(1);
    return from_lanes(lanes);
  }
}

MR_INLINE bool is_inside(i64 position, i64 extent) { return position >= 0 && position < extent; }

// Loads the lanes in use where the condition holds; the others become 0.
template <class V, class L, long Step, class T, class Condition>
MR_INLINE V load_where(const T* p, Condition condition) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    return condition(0) ? F(widen(*p)) : F(0);
  } else {
    F lanes[kLanes<F>];
    for (int l = 0; l < kLanes<F>; ++l) lanes[l] = l < L::n && condition(l) ? F(widen(p[l * Step])) : F(0);
    return from_lanes(lanes);
  }
}

template <class L, long Step, class T, class V, class Condition>
MR_INLINE void store_where(T* p, V x, Condition condition) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    if (condition(0)) *p = narrow<T>(x);
  } else {
    F lanes[kLanes<F>];
    to_lanes(lanes, x);
    for (int l = 0; l < L::n; ++l) {
      if (condition(l)) p[l * Step] = narrow<T>(lanes[l]);
    }
  }
}

// The position that an id selects on an axis; ids outside are clamped.
template <class F>
MR_INLINE i64 position_of_id(i64 extent, F id) {
  return id > F(0) ? (id < F(extent) ? i64(id) : extent - 1) : 0;
}
// The same for ids that are equal in all lanes.
template <class V>
MR_INLINE i64 selected_position(i64 extent, V ids) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    return position_of_id(extent, ids);
  } else {
    return position_of_id(extent, F(ids.registers[0][0]));
  }
}

// Loads from a table the lanes in use where the condition holds: each `Step` elements further, and at the position that
// its id selects on an axis of this stride and extent. The others become 1, or 0 where the condition does not hold.
template <class V, class L, long Step, class T, class Condition>
MR_INLINE V gather(const T* p, i64 stride, i64 extent, V ids, Condition condition) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    return condition(0) ? F(widen(p[stride * position_of_id(extent, ids)])) : F(0);
  } else {
    F lanes[kLanes<F>];
    to_lanes(lanes, ids);
    for (int l = 0; l < L::n; ++l)
      lanes[l] = condition(l) ? F(widen(p[l * Step + stride * position_of_id(extent, lanes[l])])) : F(0);
    for (int l = L::n; l < kLanes<F>; ++l) lanes[l] = F(1);
    return from_lanes(lanes);
  }
}

// The condition of every lane, for select.
template <class V, class Condition>
MR_INLINE auto mask_where(Condition condition) {
  if constexpr (!Traits<V>::vector) {
    return bool(condition(0));
  } else {
    using F = typename Traits<V>::F;
    using Integer = typename Types<F>::Integer;
    Integer lanes[kLanes<F>];
    for (int l = 0; l < kLanes<F>; ++l) lanes[l] = condition(l) ? Integer(-1) : Integer(0);
    Int<F> mask;
    __builtin_memcpy(&mask, lanes, kBytes);
    return mask;
  }
}

template <class L, long Step, class T, class V>
MR_INLINE void store(T* p, V x) {
  using F = typename Traits<V>::F;
  if constexpr (!Traits<V>::vector) {
    *p = narrow<T>(x);
  } else if constexpr (Step == 1 && kFull<L, F> && __is_same(T, F)) {
    to_lanes(p, x);
  } else if constexpr (Step == 1 && kFull<L, F> && __is_same(F, float) && kNarrowsRegisters<T>) {
    MR_EACH {
      const HalfRegister halves = narrow_register(x.registers[r], T{});
      __builtin_memcpy(p + r * (kRegister / 4), &halves, kRegister / 2);
    }
  } else {
    F lanes[kLanes<F>];
    to_lanes(lanes, x);
    for (int l = 0; l < L::n; ++l) p[l * Step] = narrow<T>(lanes[l]);
  }
}

// --- Selection ---

template <class F>
MR_INLINE Vec<F> select(Int<F> condition, Vec<F> yes, Vec<F> no) {
  MR_EACH yes.registers[r] = condition.registers[r] ? yes.registers[r] : no.registers[r];
  return yes;
}
template <class F>
MR_INLINE F select(bool condition, F yes, F no) {
  return condition ? yes : no;
}
template <class V, class C>
MR_INLINE V boolean(C condition) {
  return select(condition, splat<V>(1), splat<V>(0));
}
// The maximum. The first of two equal values; NaN if either is NaN.
template <class V>
MR_INLINE V larger(V a, V b) {
  return select((a < b) | (b != b), b, a);
}
template <class V>
MR_INLINE V smaller(V a, V b) {
  return select((b < a) | (b != b), b, a);
}
// An id as a number inside an axis of this extent.
template <class V>
MR_INLINE V selected(i64 extent, V id) {
  using F = typename Traits<V>::F;
  return smaller(larger(id, splat<V>(F(0))), splat<V>(F(extent - 1)));
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

// Only the lanes in use change.
template <class Operation, class L, class F>
MR_INLINE void accumulate(Vec<F>& total, Vec<F> x) {
  const Vec<F> all = Operation::of(total, x);
  if constexpr (kFull<L, F>) {
    total = all;
  } else {
    F lanes[kLanes<F>];
    F sums[kLanes<F>];
    to_lanes(lanes, total);
    to_lanes(sums, all);
    for (int l = 0; l < L::n; ++l) lanes[l] = sums[l];
    total = from_lanes(lanes);
  }
}
template <class Operation, class L, class F>
MR_INLINE void accumulate_at(F* to, Vec<F> x) {
  Vec<F> total = load<Vec<F>, L, 1>(to);
  store<L, 1>(to, Operation::of(total, x));
}
template <class Operation, class L, class V>
MR_INLINE typename Traits<V>::F combine(V x) {
  if constexpr (!Traits<V>::vector) {
    return x;
  } else {
    using F = typename Traits<V>::F;
    F lanes[kLanes<F>];
    to_lanes(lanes, x);
    F total = lanes[0];
    for (int l = 1; l < L::n; ++l) total = Operation::of(total, lanes[l]);
    return total;
  }
}

// --- Functions: for float, polynomials fitted to it, within three ulp; the rest by the library, one lane at a time ---

template <class V, class Function>
MR_INLINE V by_lane(V x, Function f) {
  if constexpr (Traits<V>::vector) {
    using F = typename Traits<V>::F;
    F lanes[kLanes<F>];
    to_lanes(lanes, x);
    for (int l = 0; l < kLanes<F>; ++l) lanes[l] = f(lanes[l]);
    return from_lanes(lanes);
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
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_sqrtf(lane);
    else
      return __builtin_sqrt(lane);
  });
}
template <class V>
MR_INLINE V log(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_logf(lane);
    else
      return __builtin_log(lane);
  });
}
template <class V>
MR_INLINE V power(V x, typename Traits<V>::F exponent) {
  return by_lane(x, [exponent](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_powf(lane, exponent);
    else
      return __builtin_pow(lane, exponent);
  });
}
template <class V>
MR_INLINE V exp(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_expf(lane);
    else
      return __builtin_exp(lane);
  });
}
template <class V>
MR_INLINE V tanh(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_tanhf(lane);
    else
      return __builtin_tanh(lane);
  });
}
template <class V>
MR_INLINE V erf(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_erff(lane);
    else
      return __builtin_erf(lane);
  });
}

template <class V>
MR_INLINE V sin(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_sinf(lane);
    else
      return __builtin_sin(lane);
  });
}
template <class V>
MR_INLINE V cos(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_cosf(lane);
    else
      return __builtin_cos(lane);
  });
}
template <class V>
MR_INLINE V log1p(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_log1pf(lane);
    else
      return __builtin_log1p(lane);
  });
}
template <class V>
MR_INLINE V expm1(V x) {
  return by_lane(x, [](auto lane) {
    if constexpr (sizeof(lane) == sizeof(float))
      return __builtin_expm1f(lane);
    else
      return __builtin_expm1(lane);
  });
}

// exp(x) = 2^n · exp(r), |r| at most half of log 2. The power of two is two factors, since n may exceed the range of a
// float's exponent.
MR_INLINE VecF exp(VecF x) {
  using Integers = Types<float>::Integers;
  using Register = Types<float>::Register;
  const VecF low = splat<VecF>(-104.0f);
  const VecF high = splat<VecF>(89.0f);
  x = select(x > high, high, x);
  x = select(x < low, low, x);
  const float to_integer = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const VecF n = (x * 1.44269504088896341f + to_integer) - to_integer;
  VecF r = x - n * 0.693359375f;
  r = r - n * -2.12194440054690583e-4f;
  VecF p = 0.00019919378974009305f * r + 0.0013947224942967296f;
  p = p * r + 0.008333262987434864f;
  p = p * r + 0.04166625440120697f;
  p = p * r + 0.1666666716337204f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  for (int k = 0; k < kRegisters; ++k) {
    const Integers whole = __builtin_convertvector(n.registers[k], Integers);
    const Integers half = whole >> 1;
    const Register one = __builtin_bit_cast(Register, (half + 127) << 23);
    const Register other = __builtin_bit_cast(Register, (whole - half + 127) << 23);
    p.registers[k] = p.registers[k] * one * other;
  }
  return p;
}
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
MR_INLINE VecF erf(VecF x) {
  const VecF z = x * x;
  VecF p = 7.853857823647559e-05f * z + -0.0008010192541405559f;
  p = p * z + 0.005188327748328447f;
  p = p * z + -0.026853810995817184f;
  p = p * z + 0.1128358542919159f;
  p = p * z + -0.3761262595653534f;
  p = p * z + 1.1283791065216064f;
  const VecF small = p * x;
  const VecF magnitude = absolute(x);
  const VecF m = select(magnitude > splat<VecF>(4.0f), splat<VecF>(4.0f), magnitude);
  VecF q = 0.00010684288281481713f * m + -0.0019117965130135417f;
  q = q * m + 0.015302252024412155f;
  q = q * m + -0.07275912910699844f;
  q = q * m + 0.2305707037448883f;
  q = q * m + -0.5188602805137634f;
  q = q * m + 0.8627207279205322f;
  q = q * m + -1.07984459400177f;
  q = q * m + 0.9922588467597961f;
  const VecF large = 1.0f - q * exp(-(m * m));
  const VecF signed_large = select(x < splat<VecF>(0), -large, large);
  return select(magnitude < splat<VecF>(1), small, select(x != x, x, signed_large));
}

// sin(x + quarters · π/2) = ±sin(r) or ±cos(r), |r| at most π/4. For |x| up to 4096 the products of n with the first
// three parts of π/2 are exact.
MR_INLINE VecF sin_of_quarters(VecF x, i32 quarters) {
  using Integers = Types<float>::Integers;
  const float to_integer = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const VecF n = (x * 0.636619772367581343f + to_integer) - to_integer;
  VecF r = x - n * 1.5703125f;
  r = r - n * 0.0004837512969970703f;
  r = r - n * 7.549533620476723e-08f;
  r = r - n * 2.5633440682570896e-12f;
  Int<float> quadrant;
  MR_EACH quadrant.registers[r] = __builtin_convertvector(n.registers[r], Integers) + quarters;
  const VecF z = r * r;
  VecF p = -0.0001950431615114212f * z + 0.008332083001732826f;
  p = p * z + -0.16666653752326965f;
  const VecF sine = p * z * r + r;
  VecF q = 2.4423887225566432e-05f * z + -0.0013887243112549186f;
  q = q * z + 0.04166664555668831f;
  const VecF cosine = q * z * z + (1.0f - 0.5f * z);
  const Int<float> one = position<VecF>(1);
  const Int<float> two = position<VecF>(2);
  const VecF y = select((quadrant & one) == one, cosine, sine);
  return select((quadrant & two) == two, -y, y);
}
MR_INLINE bool any_exceeds(VecF x, float most) {
  float lanes[kLanes<float>];
  to_lanes(lanes, x);
  int count = 0;
  for (int l = 0; l < kLanes<float>; ++l) count += lanes[l] > most || lanes[l] < -most;
  return count > 0;
}
MR_INLINE VecF sin(VecF x) {
  if (any_exceeds(x, 4096.0f)) return by_lane(x, [](float lane) { return __builtin_sinf(lane); });
  return sin_of_quarters(x, 0);
}
MR_INLINE VecF cos(VecF x) {
  if (any_exceeds(x, 4096.0f)) return by_lane(x, [](float lane) { return __builtin_cosf(lane); });
  return sin_of_quarters(x, 1);
}
// expm1(x) = 2^n · expm1(r) + 2^n - 1, with r and the two factors of 2^n as in exp.
MR_INLINE VecF expm1(VecF x) {
  using Integers = Types<float>::Integers;
  using Register = Types<float>::Register;
  const VecF low = splat<VecF>(-104.0f);
  const VecF high = splat<VecF>(89.0f);
  x = select(x > high, high, x);
  x = select(x < low, low, x);
  const float to_integer = 12582912.0f;
  const VecF n = (x * 1.44269504088896341f + to_integer) - to_integer;
  VecF r = x - n * 0.693359375f;
  r = r - n * -2.12194440054690583e-4f;
  VecF p = 0.0001982378598768264f * r + 0.0013934136368334293f;
  p = p * r + 0.008333423174917698f;
  p = p * r + 0.04166647419333458f;
  p = p * r + 0.1666666567325592f;
  p = p * r + 0.5f;
  p = p * r * r + r;
  for (int k = 0; k < kRegisters; ++k) {
    const Integers whole = __builtin_convertvector(n.registers[k], Integers);
    const Integers half = whole >> 1;
    const Register one = __builtin_bit_cast(Register, (half + 127) << 23);
    const Register other = __builtin_bit_cast(Register, (whole - half + 127) << 23);
    const Register inverse = __builtin_bit_cast(Register, (half - whole + 127) << 23);
    p.registers[k] = (p.registers[k] * one + (one - inverse)) * other;
  }
  return p;
}
// log1p(x) = k · log 2 + log(1 + f), where 2^k · (1 + f) is 1 + x; what rounding 1 + x lost is added at the end.
MR_INLINE VecF log1p(VecF x) {
  using Integers = Types<float>::Integers;
  using Register = Types<float>::Register;
  const VecF u = x + 1.0f;
  VecF k;
  VecF m;
  for (int r = 0; r < kRegisters; ++r) {
    const Integers bits = __builtin_bit_cast(Integers, u.registers[r]);
    const Integers exponent = (bits - 0x3f3504f3) >> 23;  // of u over the root of one half
    k.registers[r] = __builtin_convertvector(exponent, Register);
    m.registers[r] = __builtin_bit_cast(Register, bits - (exponent << 23));
  }
  const Int<float> near = k == splat<VecF>(0);
  const VecF f = select(near, x, m - 1.0f);
  const VecF lost = select(near, splat<VecF>(0), (x - (u - 1.0f)) / u);
  VecF p = 0.06746601313352585f * f + -0.11675640940666199f;
  p = p * f + 0.11888174712657928f;
  p = p * f + -0.12405591458082199f;
  p = p * f + 0.14219550788402557f;
  p = p * f + -0.1666799634695053f;
  p = p * f + 0.2000211924314499f;
  p = p * f + -0.25000008940696716f;
  p = p * f + 0.3333331346511841f;
  const VecF square = f * f;
  const VecF fraction = (p * f * square - 0.5f * square + (k * 1.428606765330187e-06f + lost)) + f;
  const VecF y = k * 0.693145751953125f + fraction;
  const VecF outside = select(u == splat<VecF>(0), splat<VecF>(-infinity()), splat<VecF>(__builtin_nanf("")));
  return select(x == splat<VecF>(infinity()), x, select(u > splat<VecF>(0), y, outside));
}

template <class V>
MR_INLINE V sign(V x) {
  return select(x > splat<V>(0), splat<V>(1), select(x < splat<V>(0), splat<V>(-1), x));
}
template <class V>
MR_INLINE V softplus(V a) {
  return larger(a, splat<V>(0)) + log1p(exp(-absolute(a)));
}
template <class V>
MR_INLINE V normal_cdf(V a) {
  using F = typename Traits<V>::F;
  return F(0.5) * (F(1) + erf(a * F(0.70710678118654752440)));
}
template <class V>
MR_INLINE V gelu(V a) {
  return a * normal_cdf(a);
}
template <class V>
MR_INLINE V gelu_dx(V a, V g) {
  using F = typename Traits<V>::F;
  return g * (normal_cdf(a) + a * (exp(F(-0.5) * a * a) * F(0.39894228040143267794)));
}
template <class V>
MR_INLINE V gelu_inner_tanh(V a) {
  using F = typename Traits<V>::F;
  return tanh(F(0.79788456080286535588) * (a + F(0.044715) * a * a * a));
}
template <class V>
MR_INLINE V gelu_tanh(V a) {
  using F = typename Traits<V>::F;
  return F(0.5) * a * (F(1) + gelu_inner_tanh(a));
}
template <class V>
MR_INLINE V gelu_tanh_dx(V a, V g) {
  using F = typename Traits<V>::F;
  const V t = gelu_inner_tanh(a);
  const V slope = F(0.79788456080286535588) * (F(1) + F(3 * 0.044715) * a * a);
  return g * F(0.5) * (F(1) + t + a * (F(1) - t * t) * slope);
}
template <class V>
MR_INLINE V silu(V a) {
  using F = typename Traits<V>::F;
  return a / (F(1) + exp(-a));
}
template <class V>
MR_INLINE V silu_dx(V a, V g) {
  using F = typename Traits<V>::F;
  const V s = F(1) / (F(1) + exp(-a));
  return g * s * (F(1) + a * (F(1) - s));
}

// --- Masks: reference/philox.h defines them ---

struct Dropout {
  u32 key0, key1, subsequence, step, threshold;
  double scale;

  Dropout(const Arguments* a, u32 subsequence_number, double probability)
      : key0(u32(a->seed)),
        key1(u32(a->seed >> 32)),
        subsequence(subsequence_number),
        step(a->step),
        threshold(u32(probability * 65536.0 + 0.5)),
        scale(1.0 / (1.0 - probability)) {
    if (threshold > 65535) threshold = 65535;
  }
};

// One Philox round of the counter (x0, x1, x2, x3); the prefix allows several counters in flight.
#define MR_ROUND_OF(x, k0, k1)                  \
  {                                             \
    const u64 p0 = u64(0xD2511F53u) * x##0;     \
    const u64 p1 = u64(0xCD9E8D57u) * x##2;     \
    const u32 y0 = u32(p1 >> 32) ^ x##1 ^ (k0); \
    const u32 y2 = u32(p0 >> 32) ^ x##3 ^ (k1); \
    x##1 = u32(p1);                             \
    x##3 = u32(p0);                             \
    x##0 = y0;                                  \
    x##2 = y2;                                  \
  }
#define MR_ROUNDS(round)                                                                                    \
  round(k0, k1) round(k0 + 0x9E3779B9u, k1 + 0xBB67AE85u) round(k0 + 2 * 0x9E3779B9u, k1 + 2 * 0xBB67AE85u) \
      round(k0 + 3 * 0x9E3779B9u, k1 + 3 * 0xBB67AE85u) round(k0 + 4 * 0x9E3779B9u, k1 + 4 * 0xBB67AE85u)   \
          round(k0 + 5 * 0x9E3779B9u, k1 + 5 * 0xBB67AE85u) round(k0 + 6 * 0x9E3779B9u, k1 + 6 * 0xBB67AE85u)
#define MR_ONE_ROUND(k0, k1) MR_ROUND_OF(x, k0, k1)
#define MR_FOUR_ROUNDS(k0, k1) \
  MR_ROUND_OF(a, k0, k1) MR_ROUND_OF(b, k0, k1) MR_ROUND_OF(c, k0, k1) MR_ROUND_OF(e, k0, k1)
#define MR_COUNTER(x, number) u32 x##0 = (number), x##1 = high, x##2 = d.subsequence, x##3 = d.step;
#define MR_TWO_MASKS(x, at)                           \
  out[at] = (x & 0xffff) >= threshold ? scale : F(0); \
  out[at + 1] = (x >> 16) >= threshold ? scale : F(0);
#define MR_MASKS(x, at) \
  MR_TWO_MASKS(x##0, at) MR_TWO_MASKS(x##1, at + 2) MR_TWO_MASKS(x##2, at + 4) MR_TWO_MASKS(x##3, at + 6)

// Draws the masks of 8 · kBlocks neighbours; the first starts a block. Sixteen blocks are four independent chains of
// rounds.
template <int kBlocks, class F>
MR_INLINE void draw_blocks(F* __restrict out, u64 block, const Dropout& d) {
  const u32 k0 = d.key0;
  const u32 k1 = d.key1;
  const F scale = F(d.scale);
  const u32 threshold = d.threshold;
  const u32 low = u32(block);
  const u32 high = u32(block >> 32);
  if constexpr (kBlocks == 16) {
#pragma omp simd
    for (u32 l = 0; l < 4; ++l) {
      MR_COUNTER(a, low + l)
      MR_COUNTER(b, low + l + 4)
      MR_COUNTER(c, low + l + 8)
      MR_COUNTER(e, low + l + 12)
      MR_ROUNDS(MR_FOUR_ROUNDS)
      MR_MASKS(a, 8 * l)
      MR_MASKS(b, 8 * l + 32)
      MR_MASKS(c, 8 * l + 64)
      MR_MASKS(e, 8 * l + 96)
    }
  } else {
#pragma omp simd
    for (u32 l = 0; l < kBlocks; ++l) {
      MR_COUNTER(x, low + l)
      MR_ROUNDS(MR_ONE_ROUND)
      MR_MASKS(x, 8 * l)
    }
  }
}

// Draws the masks of `n` elements, `step` apart, from `element` on.
template <class F>
__attribute__((noinline)) static void draw(F* __restrict out, u64 element, u64 step, i64 n, const Dropout& d) {
  const u32 k0 = d.key0;
  const u32 k1 = d.key1;
  const F scale = F(d.scale);
  const u32 threshold = d.threshold;
  i64 done = 0;
  if (step == 1 && element % 8 == 0) {
    const u64 block = element / 8;
    const bool carries = u32(block) > 0xffffffffu - u32(n / 8 + 16);  // the low word of a block's number overflows
    for (; !carries && n - done >= 128; done += 128) draw_blocks<16>(out + done, block + u64(done / 8), d);
    for (; !carries && n - done >= 32; done += 32) draw_blocks<4>(out + done, block + u64(done / 8), d);
    for (; n - done >= 8; done += 8) draw_blocks<1>(out + done, block + u64(done / 8), d);
  }
#pragma omp simd
  for (i64 l = done; l < n; ++l) {
    const u64 e = element + u64(l) * step;
    const u32 high = u32(e / 8 >> 32);
    MR_COUNTER(x, u32(e / 8))
    MR_ROUNDS(MR_ONE_ROUND)
    const u32 even = (e & 4) ? x2 : x0;
    const u32 odd = (e & 4) ? x3 : x1;
    const u32 word = (e & 2) ? odd : even;
    out[l] = ((e & 1) ? word >> 16 : word & 0xffff) >= threshold ? scale : F(0);
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

// For booleans.
template <class F>
static void unpack_bits(F* __restrict booleans, const u8* __restrict from, i64 n) {
  for (i64 k = 0; k < n; ++k) booleans[k] = F((from[k / 8] >> (k % 8)) & 1);
}

}  // namespace mr

extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
