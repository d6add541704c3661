// The columns of an attention's operands on chip. Test: tests/codegen/attention_kernel_test.cpp
#pragma once

#include <cstdint>

namespace millrace {

// The columns after padding with zeros to whole tensor-core tiles.
constexpr int64_t padded_columns(int64_t columns) {
  constexpr int64_t kTileColumns = 16;
  return (columns + kTileColumns - 1) / kTileColumns * kTileColumns;
}

}  // namespace millrace
