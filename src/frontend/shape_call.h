// A call of a shape function, with its arguments by parameter and what they may be. Tests:
// tests/frontend/views_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

inline constexpr int64_t kMaxElements = int64_t{1} << 50;  // of a view

struct ShapeCall {
  const Expression& expression;
  Builder& builder;
  Diagnostics& diagnostics;
  std::vector<std::string> parameters;
  std::vector<std::optional<Value>> arguments;  // one per parameter; nothing for None
  std::vector<bool> nones;                      // one per parameter

  SourceLocation location() const { return expression.location; }
  Value report(std::string_view message, std::string_view remedy) const;

  // Sorts positional and named arguments into the parameters, of which the first `required` must be given. If
  // `many_integers`, positional integers after the first argument are one tuple: x.reshape(2, 3).
  bool bind(const std::vector<Value>& values, size_t required, bool many_integers);

  // Whether the argument is None, written as such.
  bool is_none(size_t parameter) const { return nones[parameter]; }
  bool given(size_t parameter) const { return arguments[parameter].has_value(); }
  // These report an error and return nothing if the argument is something else.
  std::optional<View> tensor(size_t parameter) const;
  std::optional<std::vector<View>> tensors(size_t parameter) const;
  std::optional<int64_t> integer(size_t parameter) const;
  // One integer or several.
  std::optional<std::vector<int64_t>> integers(size_t parameter) const;
  // A position among `rank` axes; may be negative.
  std::optional<size_t> axis(int64_t position, size_t rank) const;
  // The axes that the argument names, in its order, each once; `missing` if it is not given.
  std::optional<std::vector<size_t>> axes(size_t parameter, size_t rank, const std::vector<size_t>& missing) const;
  std::optional<size_t> one_axis(size_t parameter, size_t rank, size_t missing) const;
  // Whether a tensor of these extents is small enough; reports an error if not.
  bool fits(const std::vector<int64_t>& extents) const;
};

std::vector<int64_t> extents_of(const View& view, const Builder& builder);

}  // namespace millrace
