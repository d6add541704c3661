// What an expression of a program stands for while it is lowered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// A tensor seen with its axes permuted or with axes of extent one added: None and transposes move no data.
struct View {
  TensorId tensor;
  std::vector<int> axes;  // one an axis of the view: the tensor's axis, or kFixed for an added one
};

enum class ValueKind {
  broken,   // complained about already; whatever uses it stays silent
  nothing,  // None
  number,
  view,
  tuple,
};

struct Value {
  ValueKind kind = ValueKind::broken;
  double number = 0;
  std::optional<int64_t> integer;  // set when `number` is one
  View view;
  std::shared_ptr<const std::vector<Value>>
      items;  // of a tuple, which holds no tuple; shared, as names for it are many

  static Value of(double number) { return {ValueKind::number, number, std::nullopt, {}, {}}; }
  static Value of(std::vector<Value> items) {
    return {ValueKind::tuple, 0, std::nullopt, {}, std::make_shared<const std::vector<Value>>(std::move(items))};
  }
  static Value of_integer(int64_t number) { return {ValueKind::number, static_cast<double>(number), number, {}, {}}; }
  static Value of(View view) { return {ValueKind::view, 0, std::nullopt, std::move(view), {}}; }
  static Value broken() { return {}; }
};

}  // namespace millrace
