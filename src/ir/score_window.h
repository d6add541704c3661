// Which keys a query sees, if a program decides that by positions: causal masks with any offset, sliding windows.
// Kernels skip the tiles outside. Test: tests/ir/score_expression_test.cpp
#pragma once

#include <cstdint>

#include "ir/score_expression.h"

namespace millrace {

// A query sees the keys from query + first to query + last.
struct KeyWindow {
  static constexpr int64_t kUnlimited = int64_t{1} << 30;

  int64_t first = -kUnlimited;
  int64_t last = kUnlimited;

  bool is_everything() const { return first == -kUnlimited && last == kUnlimited; }
  bool is_causal() const { return first == -kUnlimited && last == 0; }

  bool operator==(const KeyWindow&) const = default;
};

// Takes the masks that hide exactly the keys outside a window out of the expression. They hide a score by -inf, or by a
// number so low that its weight is zero; every query sees a key.
KeyWindow take_window(const Graph& graph, int64_t queries, int64_t keys, ScoreExpression& expression);

}  // namespace millrace
