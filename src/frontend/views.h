// Indexing of tensors: x[1:-1, ::2, 3, ..., None] as a view that moves no data. Tests: tests/frontend/lower_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/builder.h"
#include "frontend/diagnostics.h"
#include "frontend/value.h"

namespace millrace {

struct IndexItem {
  enum class Kind { slice, integer, none, ellipsis };
  Kind kind = Kind::slice;
  std::optional<int64_t> start, stop, step;  // of a slice, as written: may be negative
  int64_t integer = 0;
  SourceLocation location;
};

Value index_view(const View& view, const std::vector<IndexItem>& items, SourceLocation location, Builder& builder,
                 Diagnostics& diagnostics);

}  // namespace millrace
