#include "ir/dtype.h"

#include <array>

namespace millrace {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Row, 5> kDTypes = {{{DType::float16, "float16", 2},
                                         {DType::bfloat16, "bfloat16", 2},
                                         {DType::float32, "float32", 4},
                                         {DType::float64, "float64", 8},
                                         {DType::boolean, "bool", 1}}};

}  // namespace

std::string_view name_of(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const Row& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

int64_t bytes_of(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).bytes; }

}  // namespace millrace
