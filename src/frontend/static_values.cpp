#include "frontend/static_values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "frontend/constants.h"
#include "frontend/token_cursor.h"

namespace millrace {
namespace {

Value reported(SourceLocation location, Diagnostics& diagnostics, std::string_view message, std::string_view remedy) {
  diagnostics.report(location, message, remedy);
  return Value::broken();
}

Value boolean(bool condition) { return Value::of_integer(condition ? 1 : 0); }

bool is_number(const Value& value) { return value.kind == ValueKind::number; }
bool is_sequence(const Value& value) { return value.kind == ValueKind::tuple; }

bool compare(std::string_view op, const Value& a, const Value& b) {
  const auto decide = [&](auto x, auto y) {
    if (op == "<") return x < y;
    if (op == "<=") return x <= y;
    if (op == ">") return x > y;
    if (op == ">=") return x >= y;
    return op == "==" ? x == y : x != y;
  };
  return a.integer && b.integer ? decide(*a.integer, *b.integer) : decide(a.number, b.number);
}

// Numbers, None and tuples of them; nothing when the values contain tensors or tuples of tuples.
std::optional<bool> equal_values(const Value& a, const Value& b) {
  if (a.kind != b.kind)
    return a.kind == ValueKind::view || b.kind == ValueKind::view ? std::nullopt : std::optional(false);
  if (is_number(a)) return compare("==", a, b);
  if (!is_sequence(a)) return a.kind == ValueKind::nothing ? std::optional(true) : std::nullopt;
  if (a.list != b.list || a.items->size() != b.items->size()) return false;
  for (size_t k = 0; k < a.items->size(); ++k) {
    const Value& x = (*a.items)[k];
    const Value& y = (*b.items)[k];
    if (!is_number(x) || !is_number(y)) return std::nullopt;
    if (!compare("==", x, y)) return false;
  }
  return true;
}

Value concatenated(const Value& a, const Value& b, SourceLocation location, Diagnostics& diagnostics) {
  if (a.list != b.list) {
    return reported(location, diagnostics, "a list and a tuple cannot be joined",
                    "write both with [ ] or both with ( )");
  }
  std::vector<Value> items(*a.items);
  items.insert(items.end(), b.items->begin(), b.items->end());
  return make_sequence(std::move(items), a.list, location, diagnostics);
}

Value repeated(const Value& sequence, int64_t times, SourceLocation location, Diagnostics& diagnostics) {
  std::vector<Value> items;
  for (int64_t k = 0; k < times && !sequence.items->empty() && items.size() <= kMaxItems; ++k)
    items.insert(items.end(), sequence.items->begin(), sequence.items->end());
  return make_sequence(std::move(items), sequence.list, location, diagnostics);
}

}  // namespace

Value make_sequence(std::vector<Value> items, bool list, SourceLocation location, Diagnostics& diagnostics) {
  if (items.size() > kMaxItems)
    return reported(location, diagnostics, concat("this list has more than ", kMaxItems, " items"),
                    "make it shorter; use a tensor for many numbers");
  for (const Value& item : items) {
    if (item.kind == ValueKind::broken) return Value::broken();
  }
  Value result = Value::of(std::move(items));
  result.list = list;
  if (result.depth > kMaxValueDepth)
    return reported(location, diagnostics, concat("tuples are nested more than ", kMaxValueDepth, " deep"),
                    "unpack them with `a, b = …`");
  return result;
}

bool is_comparison(std::string_view op) {
  static constexpr auto kComparisons =
      std::to_array<std::string_view>({"<", "<=", ">", ">=", "==", "!=", "is", "is not"});
  return std::find(kComparisons.begin(), kComparisons.end(), op) != kComparisons.end();
}

Value static_binary(std::string_view op, const Value& a, const Value& b, SourceLocation location,
                    Diagnostics& diagnostics) {
  if (a.kind == ValueKind::broken || b.kind == ValueKind::broken) return Value::broken();
  if (op == "is" || op == "is not") {
    if (a.kind != ValueKind::nothing && b.kind != ValueKind::nothing)
      return reported(location, diagnostics, concat("'", op, "' compares with None only"), "write == or !=");
    return boolean((a.kind == b.kind) == (op == "is"));
  }
  if (op == "==" || op == "!=") {
    const std::optional<bool> equal = equal_values(a, b);
    if (!equal)
      return reported(location, diagnostics, "these tuples cannot be compared",
                      "compare numbers, None or tuples of numbers, as in x.shape == (2, 3)");
    return boolean(*equal == (op == "=="));
  }
  if (is_number(a) && is_number(b))
    return is_comparison(op) ? boolean(compare(op, a, b)) : fold_binary(op, a, b, location, diagnostics);
  if (op == "+" && is_sequence(a) && is_sequence(b)) return concatenated(a, b, location, diagnostics);
  if (op == "*" && is_sequence(a) && b.integer) return repeated(a, *b.integer, location, diagnostics);
  if (op == "*" && is_sequence(b) && a.integer) return repeated(b, *a.integer, location, diagnostics);
  return reported(location, diagnostics, "arithmetic needs tensors and numbers",
                  "unpack several results with `a, b = f(x)`");
}

Value static_unary(std::string_view op, const Value& a, SourceLocation location, Diagnostics& diagnostics) {
  if (a.kind == ValueKind::broken) return a;
  if (op == "not") return boolean(!*condition_of(a));
  if (!is_number(a))
    return reported(location, diagnostics, "arithmetic needs tensors and numbers",
                    "unpack several results with `a, b = f(x)`");
  if (op == "~")
    return reported(location, diagnostics, "'~' of a number is not supported", "write `not` of a condition of numbers");
  return op == "+" ? a : fold_negation(a, location, diagnostics);
}

std::optional<bool> condition_of(const Value& value) {
  switch (value.kind) {
    case ValueKind::nothing: return false;
    case ValueKind::number: return value.number != 0;
    case ValueKind::tuple: return !value.items->empty();
    default: return std::nullopt;
  }
}

Value item_of(const Value& sequence, int64_t k, SourceLocation location, Diagnostics& diagnostics) {
  const auto size = static_cast<int64_t>(sequence.items->size());
  if (k < -size || k >= size)
    return reported(location, diagnostics, concat("index ", k, " of a tuple with ", size, " items"),
                    "count from 0, or from -1 at the end");
  return (*sequence.items)[as_index(k < 0 ? k + size : k)];
}

Value slice_of(const Value& sequence, const SliceBounds& bounds, SourceLocation location, Diagnostics& diagnostics) {
  const auto size = static_cast<int64_t>(sequence.items->size());
  const int64_t step = bounds.step.value_or(1);
  if (step == 0) return reported(location, diagnostics, "the step of a slice is 0", "choose another step");
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? size : size - 1;
  const auto bound = [&](std::optional<int64_t> written, int64_t fallback) {
    if (!written) return fallback;
    return std::clamp(*written < 0 ? std::max(*written, -size - 1) + size : *written, lowest, highest);
  };
  const int64_t start = bound(bounds.start, step > 0 ? 0 : size - 1);
  const int64_t stop = bound(bounds.stop, step > 0 ? size : -1);
  std::vector<Value> items;
  // No step is longer than the sequence, so the counter does not overflow.
  const int64_t stride = std::clamp(step, -size - 1, size + 1);
  for (int64_t k = start; step > 0 ? k < stop : k > stop; k += stride) items.push_back((*sequence.items)[as_index(k)]);
  return make_sequence(std::move(items), sequence.list, location, diagnostics);
}

void unpack(const AssignmentTarget& target, const Value& value,
            const std::function<void(const std::string& name, const Value& value)>& assign, Diagnostics& diagnostics) {
  if (target.parts.empty()) {
    assign(target.name, value);
    return;
  }
  const bool fits = is_sequence(value) && value.items->size() == target.parts.size();
  if (!fits && value.kind != ValueKind::broken) {
    diagnostics.report(
        target.location,
        concat(target.parts.size(), " names for ", is_sequence(value) ? value.items->size() : 1, " values"),
        "name each value that the function returns");
  }
  for (size_t k = 0; k < target.parts.size(); ++k)
    unpack(target.parts[k], fits ? (*value.items)[k] : Value::broken(), assign, diagnostics);
}

}  // namespace millrace
