// What a word is stored as. Half precisions accumulate in float32.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/stored_type.h"

namespace millrace {

enum class DType { float16, bfloat16, float32, float64, boolean };

std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
int64_t bytes_of(DType dtype);
inline bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

// How its words are stored; a boolean is a byte.
StoredType stored_type(DType dtype);

}  // namespace millrace
