// The number types of a safetensors file, and conversions to and from double. Test: tests/base/safetensors_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

enum class StoredType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

// The name in safetensors, such as BF16.
std::string_view name_of(StoredType type);
std::optional<StoredType> stored_type_named(std::string_view name);
int64_t bytes_of(StoredType type);

// The value of an element's bits; exact except for i64 beyond 2^53.
double decode(uint64_t bits, StoredType type);

// The bits of the nearest value of the type, ties to even; integers saturate, and NaN becomes 0.
uint64_t encode(double value, StoredType type);

}  // namespace millrace
