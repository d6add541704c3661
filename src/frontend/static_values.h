// Values that are known before the program runs: numbers, None, tuples and lists. Python's operators and built-in
// functions of them. Tests: tests/frontend/syntax_test.cpp, tests/error/static_values.py.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/diagnostics.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

inline constexpr int kMaxValueDepth = 16;  // of tuples in tuples

// A tuple or list of the items; reports too many items and too deep nesting.
Value make_sequence(std::vector<Value> items, bool list, SourceLocation location, Diagnostics& diagnostics);

bool is_comparison(std::string_view op);

// a `op` b, neither a tensor: arithmetic of numbers, comparisons, a + b of two tuples or lists, a * 3 of one.
Value static_binary(std::string_view op, const Value& a, const Value& b, SourceLocation location,
                    Diagnostics& diagnostics);

// `op` a for - + and not.
Value static_unary(std::string_view op, const Value& a, SourceLocation location, Diagnostics& diagnostics);

// Whether a value counts as true in a condition; nothing for a tensor or a broken value.
std::optional<bool> condition_of(const Value& value);

// The bounds of a slice as written; each may be absent.
struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};

// sequence[k] and sequence[start:stop:step].
Value item_of(const Value& sequence, int64_t k, SourceLocation location, Diagnostics& diagnostics);
Value slice_of(const Value& sequence, const SliceBounds& bounds, SourceLocation location, Diagnostics& diagnostics);

// Assigns the value to a target's names by `assign`. Reports items that do not fit its parts.
void unpack(const AssignmentTarget& target, const Value& value,
            const std::function<void(const std::string& name, const Value& value)>& assign, Diagnostics& diagnostics);

// np.pi, np.e and np.inf, also those of math; of an imported name by its origin: math.pi.
std::optional<Value> named_constant(const Expression& name);
std::optional<Value> imported_constant(std::string_view origin);

// Whether Python or its module math has the function, for numbers and tuples: len, range, int, math.sqrt.
bool is_static_function(const Expression& call);

// Calls it. The arguments are no tensors.
Value call_static_function(const Expression& call, const std::vector<Value>& arguments, Diagnostics& diagnostics);

}  // namespace millrace
