#include "device/cpu/half_floats.h"

#include <bit>

namespace millrace {
namespace {

// Below this, starting threads takes longer than converting.
[[maybe_unused]] constexpr int64_t kWorthThreads = 32768;

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

}  // namespace

void widen(StoredType type, const void* from, float* to, int64_t count, [[maybe_unused]] int threads) {
  const auto* halves = static_cast<const uint16_t*>(from);
  if (type == StoredType::bf16) {
#pragma omp parallel for simd num_threads(threads) if (count >= kWorthThreads) schedule(static)
    for (int64_t i = 0; i < count; ++i) to[i] = from_bf16(halves[i]);
  } else {
#pragma omp parallel for simd num_threads(threads) if (count >= kWorthThreads) schedule(static)
    for (int64_t i = 0; i < count; ++i) to[i] = from_f16(halves[i]);
  }
}

void narrow(StoredType type, const float* from, void* to, int64_t count, [[maybe_unused]] int threads) {
  auto* halves = static_cast<uint16_t*>(to);
  if (type == StoredType::bf16) {
#pragma omp parallel for simd num_threads(threads) if (count >= kWorthThreads) schedule(static)
    for (int64_t i = 0; i < count; ++i) halves[i] = to_bf16(from[i]);
  } else {
#pragma omp parallel for simd num_threads(threads) if (count >= kWorthThreads) schedule(static)
    for (int64_t i = 0; i < count; ++i) halves[i] = to_f16(from[i]);
  }
}

}  // namespace millrace
