// Whether a run of a program took a branch that rounding may have decided.
#pragma once

#include "ir/graph.h"
#include "reference/bounded.h"
#include "reference/dual.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

// True if the operands of a maximum, minimum, comparison, relu or absolute value are equal within their error bounds
// although their tangents differ: 0.5 + 1e-17 and 0.5 + 1e-18 are one double. The derivative is then not unique.
bool has_undecided_branch(const Graph& graph, const Values<Dual<Bounded<53>>>& values);

}  // namespace millrace::random_programs
