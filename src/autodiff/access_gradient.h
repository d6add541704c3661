// The gradient of a tensor from the gradient of what an access reads: the transposed access.
// Tests: tests/autodiff/differentiate_test.cpp, tests/random/.
//
// An operator computes the gradient of the elements that the access reads as a compact tensor: one axis per axis of the
// operand where its indices are the digits of a contiguous run, else one per index. If the run is the whole axis, that
// is the operand's gradient. If not, `place` adds what is missing: it dilates strides, sums overlapping windows, and
// describes where the result is in the operand, so that gradients of several parts can be joined.
#pragma once

#include <string>
#include <vector>

#include "autodiff/backward_builder.h"

namespace millrace {

// The gradient of a tensor, or of a part of it. Outside of the part it is zero.
struct Contribution {
  TensorId tensor;
  std::vector<int64_t> first;  // the position of its first element on each axis; empty: it is the whole gradient
};

// The compact tensor that an operator over `op`'s space writes for an operand.
struct CompactTensor {
  std::vector<DimId> dims;
  std::vector<Position> axes;  // of the output, by the indices of the operator
  bool whole = false;          // it has the operand's shape, and is its gradient
};
CompactTensor compact_tensor(BackwardBuilder& builder, const Operator& op, const Access& operand);

struct GradientNames {
  std::string op;
  std::string tensor;
};

// Rewrites a contraction for the gradient of one of its operands. Where the operand is read in windows, s·y + k, that
// gradient is a contraction too: it sums over k and reads the output's gradient, padded with zeros and dilated by s, at
// v - k. Afterwards the operand runs along v alone. Without this, every window would be computed separately and then
// summed.
void transpose_windows(BackwardBuilder& builder, Operator& op, size_t input, Access& g, const GradientNames& names);

// The contribution of the compact tensor to the operand's gradient.
Contribution place(BackwardBuilder& builder, const Operator& op, const Access& operand, TensorId compact,
                   const GradientNames& names);

// Joins parts that do not overlap into whole gradients; `like`: the tensor that they are gradients of.
std::vector<TensorId> join_parts(BackwardBuilder& builder, TensorId like, const std::vector<Contribution>& parts,
                                 const GradientNames& names);

// A join restricted to the region of one of its inputs, which it copies there.
struct JoinPart {
  Operator op;
  Access operand;
  Access g;  // the part of the join's gradient
};
JoinPart join_part(BackwardBuilder& builder, const Operator& join, size_t k, const Access& g);

}  // namespace millrace
