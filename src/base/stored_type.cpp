#include "base/stored_type.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

struct TypeRow {
  std::string_view name;
  int64_t size;  // bytes of one element
};

// In the order of StoredType.
constexpr std::array<TypeRow, 10> kTypes = {{{"F64", 8},
                                             {"F32", 4},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I64", 8},
                                             {"I32", 4},
                                             {"I16", 2},
                                             {"I8", 1},
                                             {"U8", 1},
                                             {"BOOL", 1}}};

const TypeRow& row_of(StoredType type) { return kTypes.at(static_cast<size_t>(type)); }

// An IEEE format narrower than double.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
  uint64_t max_exponent() const { return (uint64_t{1} << exponent_bits) - 1; }
  int bias() const { return static_cast<int>(max_exponent() >> 1); }
};
constexpr FloatFormat kF32{8, 23};
constexpr FloatFormat kF16{5, 10};
constexpr FloatFormat kBF16{8, 7};

constexpr int kDoubleFraction = 52;
constexpr int kDoubleBias = 1023;
constexpr uint64_t kDoubleMaxExponent = 0x7FF;

// Works on bits, so that NaNs keep their payload and the rounding mode does not matter.
double decode_float(uint64_t bits, FloatFormat format) {
  const uint64_t sign = bits >> (format.exponent_bits + format.fraction_bits) << 63;
  const uint64_t exponent = bits >> format.fraction_bits & format.max_exponent();
  const uint64_t fraction = bits & ((uint64_t{1} << format.fraction_bits) - 1);
  if (exponent == 0) {
    const double magnitude = std::ldexp(static_cast<double>(fraction), 1 - format.bias() - format.fraction_bits);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint64_t wide = exponent == format.max_exponent()
                            ? kDoubleMaxExponent
                            : exponent + static_cast<uint64_t>(kDoubleBias - format.bias());
  return std::bit_cast<double>(sign | wide << kDoubleFraction | fraction << (kDoubleFraction - format.fraction_bits));
}

// Rounds once, from double to the narrow format, to nearest with ties to even.
uint64_t encode_float(double value, FloatFormat format) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits >> 63 << (format.exponent_bits + format.fraction_bits);
  const uint64_t wide = bits >> kDoubleFraction & kDoubleMaxExponent;
  const uint64_t fraction = bits & ((uint64_t{1} << kDoubleFraction) - 1);
  const uint64_t infinity = format.max_exponent() << format.fraction_bits;
  int shift = kDoubleFraction - format.fraction_bits;
  if (wide == kDoubleMaxExponent) {
    if (fraction == 0) return sign | infinity;
    // A NaN whose payload is only in the dropped bits must not become an infinity.
    const uint64_t payload = fraction >> shift;
    return sign | infinity | (payload != 0 ? payload : uint64_t{1} << (format.fraction_bits - 1));
  }
  const int exponent = static_cast<int>(wide) - kDoubleBias + format.bias();
  if (exponent >= static_cast<int>(format.max_exponent())) return sign | infinity;
  // A subnormal of the narrow format loses one more bit for every power of two below its smallest exponent.
  if (exponent < 1) shift += 1 - exponent;
  // Below half of the smallest subnormal. Subnormal doubles end here too; all other doubles have a leading one.
  if (shift > kDoubleFraction + 1) return sign;
  const uint64_t significand = fraction | uint64_t{1} << kDoubleFraction;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  uint64_t kept = significand >> shift;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // `kept` includes the leading bit, which adds one to the exponent; a carry moves to the next exponent or to infinity.
  const uint64_t below = exponent < 1 ? 0 : static_cast<uint64_t>(exponent - 1) << format.fraction_bits;
  return sign | (below + kept);
}

template <class Integer>
uint64_t encode_integer(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // As a double, the maximum of I64 is 2^63: saturate at or beyond it, because the cast would be undefined.
  if (rounded >= static_cast<double>(Limits::max())) return static_cast<uint64_t>(Limits::max());
  if (rounded <= static_cast<double>(Limits::min())) return static_cast<uint64_t>(Limits::min());
  return static_cast<uint64_t>(static_cast<Integer>(rounded));
}

}  // namespace

std::string_view name_of(StoredType type) { return row_of(type).name; }

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (size_t k = 0; k < kTypes.size(); ++k) {
    if (kTypes.at(k).name == name) return static_cast<StoredType>(k);
  }
  return std::nullopt;
}

int64_t bytes_of(StoredType type) { return row_of(type).size; }

double decode(uint64_t bits, StoredType type) {
  switch (type) {
    case StoredType::f64: return std::bit_cast<double>(bits);
    case StoredType::f32: return decode_float(bits, kF32);
    case StoredType::f16: return decode_float(bits, kF16);
    case StoredType::bf16: return decode_float(bits, kBF16);
    case StoredType::i64: return static_cast<double>(static_cast<int64_t>(bits));
    case StoredType::i32: return static_cast<int32_t>(bits);
    case StoredType::i16: return static_cast<int16_t>(bits);
    case StoredType::i8: return static_cast<int8_t>(bits);
    case StoredType::u8: return static_cast<uint8_t>(bits);
    case StoredType::boolean: return bits != 0 ? 1 : 0;
  }
  return 0;
}

uint64_t encode(double value, StoredType type) {
  switch (type) {
    case StoredType::f64: return std::bit_cast<uint64_t>(value);
    case StoredType::f32: return encode_float(value, kF32);
    case StoredType::f16: return encode_float(value, kF16);
    case StoredType::bf16: return encode_float(value, kBF16);
    case StoredType::i64: return encode_integer<int64_t>(value);
    case StoredType::i32: return encode_integer<int32_t>(value);
    case StoredType::i16: return encode_integer<int16_t>(value);
    case StoredType::i8: return encode_integer<int8_t>(value);
    case StoredType::u8: return encode_integer<uint8_t>(value);
    case StoredType::boolean: return value != 0 ? 1 : 0;
  }
  return 0;
}

}  // namespace millrace
