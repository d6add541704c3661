// The value of an expression during lowering. Tests: tests/frontend/lower_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// A tensor with its axes permuted or with axes of extent one added: None and transposes move no data.
struct View {
  TensorId tensor;
  std::vector<int> axes;  // one per axis of the view: the tensor's axis, or kFixed for an added one
};

enum class ValueKind {
  broken,   // its error is reported already; users of it report nothing
  nothing,  // None
  number,
  view,
  tuple,
};

struct Value {
  ValueKind kind = ValueKind::broken;
  double number = 0;
  std::optional<int64_t> integer;  // set when `number` is an integer
  View view;
  // Of a tuple or list. Shared, because many names may refer to it; only a list with one name is ever changed.
  std::shared_ptr<std::vector<Value>> items;
  bool list = false;  // a tuple in brackets []
  int depth = 0;      // of the tuples in it

  static Value of(double number) { return {ValueKind::number, number, std::nullopt, {}, {}}; }
  static Value of(std::vector<Value> items) {
    int depth = 0;
    for (const Value& item : items) depth = std::max(depth, item.depth);
    auto shared = std::make_shared<std::vector<Value>>(std::move(items));
    return {ValueKind::tuple, 0, std::nullopt, {}, std::move(shared), false, depth + 1};
  }
  static Value nothing() { return {ValueKind::nothing, 0, std::nullopt, {}, {}}; }
  static Value of_integer(int64_t number) { return {ValueKind::number, static_cast<double>(number), number, {}, {}}; }
  static Value of(View view) { return {ValueKind::view, 0, std::nullopt, std::move(view), {}}; }
  static Value broken() { return {}; }
};

}  // namespace millrace
