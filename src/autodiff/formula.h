// Parses the gradient formulas of operators.inc, such as `divide(multiply(g,0.5),y)`. Tests: tests/autodiff/,
// tests/random/.
#pragma once

#include <string_view>
#include <vector>

#include "ir/operator_kind.h"

namespace millrace {

struct Formula {
  enum class Kind { none, symbol, number, call };
  Kind kind = Kind::none;
  char symbol = 0;  // a, b, c, y, m or g
  double number = 0;
  OperatorKind callee = OperatorKind::copy;
  std::vector<Formula> arguments;
};

// One formula for each input; empty if autodiff has a rule for the operator.
std::vector<Formula> gradient_formulas(OperatorKind kind);

}  // namespace millrace
