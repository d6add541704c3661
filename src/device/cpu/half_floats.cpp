#include "device/cpu/half_floats.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace {
namespace {

// Below this, starting threads takes longer than converting.
[[maybe_unused]] constexpr int64_t kWorthThreads = 32768;
constexpr int64_t kSlice = 8192;

constexpr uint32_t kF32Infinity = 0x7F800000;
constexpr int kF32Fraction = 23;
constexpr int kF16Dropped = 13;  // bits of a float32's fraction that float16 lacks
constexpr uint32_t kBiasDifference = (127U - 15U) << kF32Fraction;
constexpr uint32_t kF16SmallestNormal = 113U << kF32Fraction;  // 2^-14
constexpr uint32_t kF16Overflow = 143U << kF32Fraction;        // 2^16
constexpr uint32_t kF16Infinity = 0x7C00;
constexpr uint32_t kF16QuietNan = 0x7E00;
constexpr uint32_t kSubnormalStep = 126U << kF32Fraction;  // 0.5: its last bit is worth float16's smallest subnormal
constexpr int kBf16Dropped = 16;

// No branches, not even any that the compiler could make from ?:, so that the loops below become vector instructions.

inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0U - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float from_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << kBf16Dropped); }

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> kBf16Dropped & 1)) >> kBf16Dropped;
  const uint32_t quiet = bits >> kBf16Dropped | 0x40;
  return static_cast<uint16_t>(choose((bits & 0x7FFFFFFF) > kF32Infinity, quiet, rounded));
}

inline float from_f16(uint16_t half) {
  const uint32_t magnitude = (half & 0x7FFFU) << kF16Dropped;
  const uint32_t exponent = magnitude & kF16Infinity << kF16Dropped;
  const uint32_t normal = magnitude + kBiasDifference;
  // 2^-14 + the fraction, less 2^-14: the subtraction normalises.
  const float above = std::bit_cast<float>(magnitude + kF16SmallestNormal);
  const uint32_t subnormal = std::bit_cast<uint32_t>(above - std::bit_cast<float>(kF16SmallestNormal));
  const uint32_t finite = choose(exponent == 0, subnormal, normal);
  const uint32_t bits = choose(exponent == kF16Infinity << kF16Dropped, magnitude | kF32Infinity, finite);
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16);
}

inline uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t odd = magnitude >> kF16Dropped & 1;
  const uint32_t normal = (magnitude - kBiasDifference + 0xFFF + odd) >> kF16Dropped;
  // Adding 0.5 rounds to a multiple of its last bit, by the machine's rounding to even.
  const float stepped = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kSubnormalStep);
  const uint32_t subnormal = std::bit_cast<uint32_t>(stepped) - kSubnormalStep;
  const uint32_t finite = choose(magnitude < kF16SmallestNormal, subnormal, normal);
  const uint32_t special = choose(magnitude > kF32Infinity, kF16QuietNan, kF16Infinity);
  return static_cast<uint16_t>(choose(magnitude >= kF16Overflow, special, finite) | (bits >> 16 & 0x8000));
}

// Conversions of `count` numbers on one thread.
struct Conversions {
  void (*widen_bf16)(const uint16_t* from, float* to, int64_t count);
  void (*widen_f16)(const uint16_t* from, float* to, int64_t count);
  void (*narrow_bf16)(const float* from, uint16_t* to, int64_t count);
  void (*narrow_f16)(const float* from, uint16_t* to, int64_t count);
};

constexpr Conversions kPlain = {[](const uint16_t* from, float* to, int64_t count) {
#pragma omp simd
                                  for (int64_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]);
                                },
                                [](const uint16_t* from, float* to, int64_t count) {
#pragma omp simd
                                  for (int64_t i = 0; i < count; ++i) to[i] = from_f16(from[i]);
                                },
                                [](const float* from, uint16_t* to, int64_t count) {
#pragma omp simd
                                  for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
                                },
                                [](const float* from, uint16_t* to, int64_t count) {
#pragma omp simd
                                  for (int64_t i = 0; i < count; ++i) to[i] = to_f16(from[i]);
                                }};

#if defined(__x86_64__)

constexpr int64_t kLanes = 8;

[[gnu::target("avx2")]] void widen_bf16_avx2(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(to + i, _mm256_castsi256_ps(_mm256_slli_epi32(halves, kBf16Dropped)));
  }
  for (; i < count; ++i) to[i] = from_bf16(from[i]);
}

[[gnu::target("avx2,f16c")]] void widen_f16_avx2(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = from_f16(from[i]);
}

[[gnu::target("avx2")]] void narrow_bf16_avx2(const float* from, uint16_t* to, int64_t count) {
  const __m256i half = _mm256_set1_epi32(0x7FFF);
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i quiet_bit = _mm256_set1_epi32(0x40);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 value = _mm256_loadu_ps(from + i);
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i kept = _mm256_srli_epi32(bits, kBf16Dropped);
    const __m256i step = _mm256_add_epi32(half, _mm256_and_si256(kept, one));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, step), kBf16Dropped);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(rounded, _mm256_or_si256(kept, quiet_bit), nan);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), packed);
  }
  for (; i < count; ++i) to[i] = to_bf16(from[i]);
}

[[gnu::target("avx2,f16c")]] void narrow_f16_avx2(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < count; ++i) to[i] = to_f16(from[i]);
}

constexpr Conversions kAvx2 = {widen_bf16_avx2, widen_f16_avx2, narrow_bf16_avx2, narrow_f16_avx2};

constexpr int64_t kWideLanes = 16;

[[gnu::target("avx512f")]] void widen_bf16_avx512(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWideLanes <= count; i += kWideLanes) {
    const __m512i halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    _mm512_storeu_ps(to + i, _mm512_castsi512_ps(_mm512_slli_epi32(halves, kBf16Dropped)));
  }
  for (; i < count; ++i) to[i] = from_bf16(from[i]);
}

[[gnu::target("avx512f")]] void widen_f16_avx512(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWideLanes <= count; i += kWideLanes)
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  for (; i < count; ++i) to[i] = from_f16(from[i]);
}

[[gnu::target("avx512f")]] void narrow_f16_avx512(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWideLanes <= count; i += kWideLanes)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < count; ++i) to[i] = to_f16(from[i]);
}

// The instruction flushes denormal numbers, so the few vectors that have some are rounded one by one. They are found as
// integers, because comparisons of floats may flush them too.
[[gnu::target("avx512f,avx512bf16")]] void narrow_bf16_avx512(const float* from, uint16_t* to, int64_t count) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i limit = _mm512_set1_epi32(0xFFFFFF);  // twice a denormal number's bits, less one, are below it
  int64_t i = 0;
  for (; i + kWideLanes <= count; i += kWideLanes) {
    const __m512 values = _mm512_loadu_ps(from + i);
    const __m512i bits = _mm512_castps_si512(values);
    if (_mm512_cmplt_epu32_mask(_mm512_sub_epi32(_mm512_add_epi32(bits, bits), one), limit) == 0) {
      const auto halves = _mm512_cvtneps_pbh(values);
      std::memcpy(to + i, &halves, sizeof(halves));
    } else {
      for (int64_t lane = i; lane < i + kWideLanes; ++lane) to[lane] = to_bf16(from[lane]);
    }
  }
  for (; i < count; ++i) to[i] = to_bf16(from[i]);
}

constexpr Conversions kAvx512 = {widen_bf16_avx512, widen_f16_avx512, narrow_bf16_avx512, narrow_f16_avx512};

const Conversions& fastest_conversions() {
  // A processor that has AVX2 has F16C too.
  if (__builtin_cpu_supports("avx512bf16")) return kAvx512;
  return __builtin_cpu_supports("avx2") ? kAvx2 : kPlain;
}

const Conversions& conversions() {
  static const Conversions& fastest = fastest_conversions();
  return fastest;
}

#else

const Conversions& conversions() { return kPlain; }

#endif

// Shares a conversion among threads.
template <class From, class To>
void share(void (*convert)(const From*, To*, int64_t), const From* from, To* to, int64_t count,
           [[maybe_unused]] int threads) {
  const int64_t slices = (count + kSlice - 1) / kSlice;
#pragma omp parallel for num_threads(threads) if (count >= kWorthThreads) schedule(static)
  for (int64_t slice = 0; slice < slices; ++slice) {
    const int64_t begin = slice * kSlice;
    convert(from + begin, to + begin, std::min(kSlice, count - begin));
  }
}

}  // namespace

void widen(StoredType type, const void* from, float* to, int64_t count, int threads) {
  const Conversions& known = conversions();
  share(type == StoredType::bf16 ? known.widen_bf16 : known.widen_f16, static_cast<const uint16_t*>(from), to, count,
        threads);
}

void narrow(StoredType type, const float* from, void* to, int64_t count, int threads) {
  const Conversions& known = conversions();
  share(type == StoredType::bf16 ? known.narrow_bf16 : known.narrow_f16, from, static_cast<uint16_t*>(to), count,
        threads);
}

}  // namespace millrace
