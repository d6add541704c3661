// The value of an expression during lowering. Tests: tests/frontend/lower_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// A virtual index of a view.
struct Part {
  DimId dim;
  int64_t extent = 1;

  bool operator==(const Part&) const = default;
};

// A tensor seen through an index function, without moving data. Each axis of the view is a list of parts that count its
// positions like the digits of a number: one part usually, several for a merged axis, none for an added axis of extent
// one. `at` is the position on each axis of the tensor, as a function of the parts; a part in no position is broadcast.
// Each part is on exactly one axis; the parts of a merged axis have extents greater than one.
struct View {
  TensorId tensor;
  std::vector<Part> parts;
  std::vector<std::vector<int>> axes;
  std::vector<Position> at;  // IndexTerm::index is the number of a part
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
  // The items of a tuple or list. Shared, because many names may refer to it; only a list with one name is ever
  // changed.
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
