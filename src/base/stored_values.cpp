#include "base/stored_values.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// A half-sized format: the high bits of a double with another exponent bias, for all numbers that are neither too small
// nor too large for it.
struct Half {
  StoredType type;
  int fraction;  // bits
  int bias;
};
constexpr Half kBfloat16{StoredType::bf16, 7, 127};
constexpr Half kFloat16{StoredType::f16, 10, 15};

constexpr int kDoubleFractionBits = 52;
constexpr int kDoubleExponentBias = 1023;
constexpr uint64_t kSign = uint64_t{1} << 63;

template <Half kHalf>
uint16_t encoded(double value) {
  constexpr int kShift = kDoubleFractionBits - kHalf.fraction;
  constexpr uint64_t kBiases = static_cast<uint64_t>(kDoubleExponentBias - kHalf.bias) << kHalf.fraction;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & ~kSign;
  // To nearest, with ties to even. A carry goes to the exponent.
  const uint64_t odd = magnitude >> kShift & 1;
  const uint64_t rounded = (magnitude + (uint64_t{1} << (kShift - 1)) - 1 + odd) >> kShift;
  constexpr uint64_t kLeast = kBiases + (uint64_t{1} << kHalf.fraction);  // of exponent 1
  constexpr uint64_t kMost = kBiases + (uint64_t{2 * kHalf.bias + 1} << kHalf.fraction) - 1;
  if (magnitude >> kShift >= kLeast && magnitude >> kShift <= kMost)
    return static_cast<uint16_t>(bits >> 63 << 15 | (rounded - kBiases));
  return static_cast<uint16_t>(encode(value, kHalf.type));
}

template <Half kHalf>
double decoded(uint16_t stored) {
  constexpr int kShift = kDoubleFractionBits - kHalf.fraction;
  constexpr uint64_t kBiases = static_cast<uint64_t>(kDoubleExponentBias - kHalf.bias) << kDoubleFractionBits;
  const uint64_t magnitude = stored & 0x7fff;
  const uint64_t exponent = magnitude >> kHalf.fraction;
  if (exponent == 0 || exponent > 2 * static_cast<uint64_t>(kHalf.bias)) return decode(stored, kHalf.type);
  return std::bit_cast<double>(uint64_t{stored} >> 15 << 63 | ((magnitude << kShift) + kBiases));
}

template <class Stored, class Convert>
void write_run(const double* from, size_t count, char* to, size_t stride, const Convert& convert) {
  for (size_t k = 0; k < count; ++k) {
    const Stored stored = convert(from[k]);
    std::memcpy(to + k * stride * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <class Stored, class Convert>
void read_run(const char* from, size_t count, size_t stride, double* to, const Convert& convert) {
  for (size_t k = 0; k < count; ++k) {
    Stored stored;
    std::memcpy(&stored, from + k * stride * sizeof(Stored), sizeof(Stored));
    to[k] = convert(stored);
  }
}

}  // namespace

void encode_run(const double* from, size_t count, StoredType type, char* to, size_t stride) {
  if (type == StoredType::f32)
    return write_run<float>(from, count, to, stride, [](double value) { return static_cast<float>(value); });
  if (type == StoredType::bf16) return write_run<uint16_t>(from, count, to, stride, encoded<kBfloat16>);
  if (type == StoredType::f16) return write_run<uint16_t>(from, count, to, stride, encoded<kFloat16>);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for (size_t k = 0; k < count; ++k) {
    const uint64_t bits = encode(from[k], type);
    std::memcpy(to + k * stride * bytes, &bits, bytes);
  }
}

void decode_run(const char* from, size_t count, StoredType type, size_t stride, double* to) {
  if (type == StoredType::f32)
    return read_run<float>(from, count, stride, to, [](float value) { return static_cast<double>(value); });
  if (type == StoredType::bf16) return read_run<uint16_t>(from, count, stride, to, decoded<kBfloat16>);
  if (type == StoredType::f16) return read_run<uint16_t>(from, count, stride, to, decoded<kFloat16>);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for (size_t k = 0; k < count; ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, from + k * stride * bytes, bytes);
    to[k] = decode(bits, type);
  }
}

}  // namespace millrace
