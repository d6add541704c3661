// A call of a named function during lowering: its arguments by parameter, and the checks that functions share.
// Tests: tests/frontend/functions_test.cpp, tests/error/function_arguments.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

struct FunctionCall {
  const Expression& expression;
  Builder& builder;
  Diagnostics& diagnostics;
  std::vector<std::optional<Value>> arguments;  // one per parameter of the signature

  SourceLocation location() const { return expression.location; }
  Value report(std::string_view message, std::string_view remedy) const;

  // The argument as a tensor; nullptr, with a report, if it is a number.
  const View* tensor(size_t parameter) const;

  // The argument as a number; `fallback` if it is absent.
  std::optional<double> number(size_t parameter, double fallback) const;
  std::optional<int64_t> integer(size_t parameter, int64_t fallback) const;

  // The axes of a reduction: one number or several; the default, and None, mean all.
  std::optional<std::vector<bool>> axes(size_t parameter, size_t rank) const;

  // The axes of a softmax or normalization: one number or several; the default is the last.
  std::optional<std::vector<bool>> normalized_axes(size_t parameter, size_t rank) const;

  // One axis.
  std::optional<size_t> axis(const Value& value, size_t rank) const;

  // kind(inputs) of tensors and numbers; folds if all are numbers.
  Value map(OperatorKind kind, const std::vector<Value>& inputs, double value = 0) const;

 private:
  std::optional<std::vector<bool>> marked_axes(const Value& value, size_t rank) const;
};

using FunctionHandler = Value (*)(const FunctionCall& call, OperatorKind kind);

// How many elements a reduction over the marked axes combines.
double points_along(const FunctionCall& call, const View& view, const std::vector<bool>& axes);

}  // namespace millrace
