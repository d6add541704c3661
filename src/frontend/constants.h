// Arithmetic on the numbers of a program text: sizes, scales, epsilons. Integer results are exact; overflow is an
// error. Tests: tests/frontend/sizes_test.cpp, tests/error/size_expressions.py.
#pragma once

#include <string_view>

#include "frontend/diagnostics.h"
#include "frontend/value.h"

namespace millrace {

// a `op` b for + - * / // % **, and & | ^ of integers.
Value fold_binary(std::string_view op, const Value& a, const Value& b, SourceLocation location,
                  Diagnostics& diagnostics);

Value fold_negation(const Value& a, SourceLocation location, Diagnostics& diagnostics);

// kind(a, b) of an elementwise operator that NumPy also defines for numbers; for other kinds an error.
Value fold_function(OperatorKind kind, const std::vector<Value>& inputs, double value, SourceLocation location,
                    Diagnostics& diagnostics);

}  // namespace millrace
