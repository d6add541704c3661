#include "ir/dtype.h"

#include <array>

namespace millrace {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Row, 7> kDTypes = {{{DType::float16, "float16", 2},
                                         {DType::bfloat16, "bfloat16", 2},
                                         {DType::float32, "float32", 4},
                                         {DType::float64, "float64", 8},
                                         {DType::boolean, "bool", 1},
                                         {DType::int32, "int32", 4},
                                         {DType::int64, "int64", 8}}};

}  // namespace

std::string_view name_of(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const Row& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

int64_t bytes_of(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).bytes; }

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::float16: return StoredType::f16;
    case DType::bfloat16: return StoredType::bf16;
    case DType::float32: return StoredType::f32;
    case DType::float64: return StoredType::f64;
    case DType::int32: return StoredType::i32;
    case DType::int64: return StoredType::i64;
    case DType::boolean: break;
  }
  return StoredType::u8;
}

}  // namespace millrace
