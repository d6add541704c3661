// Random np.einsum expressions: any operands, diagonals, broadcast axes of extent one, ellipses, implicit output.
#pragma once

#include <vector>

#include "random/body.h"

namespace millrace::random_programs {

// The label of an operand's ellipsis.
inline constexpr int kEllipsis = -1;

// An operand and, for each of its axes, the label of the index along which it runs.
struct Term {
  Value value;
  std::vector<int> labels;
};

enum class OutputForm {
  explicit_output,
  implicit_output,  // without "->": NumPy orders the output by the letters, so they are not drawn freely
};

// The einsum of these terms; a letter is drawn for each label. An implicit output must be the sorted labels.
Value einsum(Body& body, const std::vector<Term>& terms, const std::vector<int>& output,
             OutputForm form = OutputForm::explicit_output);

// The labels 0, 1, … of a value's axes.
std::vector<int> labels_of(const Value& value);

// One operand: a transpose, and more rarely a diagonal, a trace or a sum.
Value rearranged(Body& body, const Value& value);

// x with a new weight: some of x's axes are contracted and new ones appear.
Value projected(Body& body, const Value& x);

// One to four of the available operands.
Value contracted(Body& body, const Value& first);

}  // namespace millrace::random_programs
