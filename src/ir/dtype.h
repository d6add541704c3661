// The storage type of a tensor's elements. Half-precision types accumulate in float32. Tests: tests/reference/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/stored_type.h"

namespace millrace {

enum class DType { float16, bfloat16, float32, float64, boolean, int32, int64 };

std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
int64_t bytes_of(DType dtype);
inline bool is_integer(DType dtype) { return dtype == DType::int32 || dtype == DType::int64; }
// Whether it holds numbers to compute with. Integers and booleans are compared, select values, or serve as indices.
inline bool is_floating(DType dtype) { return dtype != DType::boolean && !is_integer(dtype); }
inline bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

// The type in a file; a boolean is one byte.
StoredType stored_type(DType dtype);

}  // namespace millrace
