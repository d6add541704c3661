// The tensors of an operator, with a stride for each index of its space and the offset where all indices are zero. A
// broadcast has stride zero; a diagonal has the sum of two axes' strides. Tests: tests/reference/interpreter_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "ir/graph.h"
#include "reference/interpreter.h"

namespace millrace {

// The offset of a point of the space in each accessed tensor.
template <size_t kAccesses>
using Offsets = std::array<int64_t, kAccesses>;

template <size_t kAccesses>
struct Loop {
  int64_t extent = 0;
  Offsets<kAccesses> strides{};
};

// Calls body(offsets) at each point of the nest, the last loop innermost.
template <size_t kAccesses, class Body>
void for_each_point(std::span<const Loop<kAccesses>> loops, Offsets<kAccesses> at, const Body& body) {
  if (loops.empty()) {
    body(at);
    return;
  }
  const Loop<kAccesses> loop = loops.front();
  const std::span<const Loop<kAccesses>> inner = loops.subspan(1);
  const auto advance = [&] {
    for (size_t k = 0; k < kAccesses; ++k) at[k] += loop.strides[k];
  };
  if (inner.empty()) {
    for (int64_t i = 0; i < loop.extent; ++i, advance()) body(at);
  } else {
    for (int64_t i = 0; i < loop.extent; ++i, advance()) for_each_point(inner, at, body);
  }
}

template <size_t kAccesses>
using LoopNest = std::span<const Loop<kAccesses>>;

// Calls run(loops, first) once. If the nest has many points, calls it on several threads instead, for slices of the
// longest loop among those that `may_split` allows: points in different slices are independent. It is not a template
// over `run`, which would be compiled again for each formula.
template <size_t kAccesses>
void share_loops(const std::vector<Loop<kAccesses>>& loops, const Offsets<kAccesses>& first, int64_t points,
                 const std::function<bool(const Loop<kAccesses>&)>& may_split,
                 const std::function<void(LoopNest<kAccesses>, const Offsets<kAccesses>&)>& run) {
  constexpr int64_t kMany = 1 << 18;
  size_t longest = loops.size();
  for (size_t k = 0; k < loops.size(); ++k) {
    if (may_split(loops[k]) && (longest == loops.size() || loops[k].extent > loops[longest].extent)) longest = k;
  }
  if (points < kMany || longest == loops.size()) return run(loops, first);
  in_parallel(loops[longest].extent, 1, [&](int64_t begin, int64_t end) {
    std::vector<Loop<kAccesses>> slice = loops;
    slice[longest].extent = end - begin;
    Offsets<kAccesses> moved = first;
    for (size_t k = 0; k < kAccesses; ++k) moved[k] += begin * slice[longest].strides[k];
    run(slice, moved);
  });
}

template <size_t kAccesses>
int64_t points_of(LoopNest<kAccesses> loops) {
  int64_t points = 1;
  for (const Loop<kAccesses>& loop : loops) points *= loop.extent;
  return points;
}

inline int64_t stride_along(const Graph& graph, const Access& access, size_t index) {
  const std::vector<DimId>& dims = graph.tensor(access.tensor).dims;
  int64_t stride = 0;
  int64_t axis_stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    stride += axis_stride * access.axes[axis].stride_along(static_cast<int>(index));
    axis_stride *= graph.extent(dims[axis]);
  }
  return stride;
}

inline int64_t first_element(const Graph& graph, const Access& access) {
  const std::vector<DimId>& dims = graph.tensor(access.tensor).dims;
  int64_t first = 0;
  int64_t axis_stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    first += axis_stride * access.axes[axis].offset;
    axis_stride *= graph.extent(dims[axis]);
  }
  return first;
}

// The first kInputs inputs and kOutputs outputs of an operator, with a loop nest over the kept indices and an inner one
// over the reduced indices.
template <class Scalar, size_t kInputs, size_t kOutputs>
class Operands {
 public:
  using At = Offsets<kInputs + kOutputs>;

  Operands(const Graph& graph, const Operator& op, Values<Scalar>& values) {
    for (size_t k = 0; k < kInputs; ++k) {
      inputs_[k] = values[op.inputs[k].tensor.at()].data();
      first_[k] = first_element(graph, op.inputs[k]);
    }
    for (size_t k = 0; k < kOutputs; ++k) outputs_[k] = values[op.outputs[k].tensor.at()].data();
    for (size_t index = 0; index < op.space.size(); ++index) {
      Loop<kInputs + kOutputs> loop;
      loop.extent = graph.extent(op.space[index]);
      for (size_t k = 0; k < kInputs; ++k) loop.strides[k] = stride_along(graph, op.inputs[k], index);
      for (size_t k = 0; k < kOutputs; ++k) loop.strides[kInputs + k] = stride_along(graph, op.outputs[k], index);
      (op.reduced[index] ? reduced_ : kept_).push_back(loop);
    }
  }

  const Scalar& in(size_t k, const At& at) const { return inputs_[k][at[k]]; }
  Scalar& out(size_t k, const At& at) const { return outputs_[k][at[kInputs + k]]; }
  int64_t out_element(const At& at) const { return at[kInputs]; }

  // Calls body(row) at each point of the kept indices; the reduced indices are zero there.
  template <class Body>
  void for_each_row(const Body& body) const {
    share_rows([&](Loops loops, const At& first) { for_each_point<kInputs + kOutputs>(loops, first, body); });
  }

  // Calls body(at) at each point of the reduced indices.
  template <class Body>
  void along(const At& row, const Body& body) const {
    for_each_point<kInputs + kOutputs>(reduced_, row, body);
  }

  // Σ term(at) over the reduced indices.
  template <class Term>
  Scalar sum(const At& row, const Term& term) const {
    Scalar total(0);
    along(row, [&](const At& at) { total = total + term(at); });
    return total;
  }

  template <class Term>
  Scalar mean(const At& row, const Term& term) const {
    return sum(row, term) / Scalar(static_cast<double>(row_length()));
  }

 private:
  using Loops = LoopNest<kInputs + kOutputs>;

  // Rows are independent.
  void share_rows(const std::function<void(Loops, const At&)>& run) const {
    const int64_t points = row_length() * points_of<kInputs + kOutputs>(kept_);
    share_loops<kInputs + kOutputs>(
        kept_, first_, points, [](const auto&) { return true; }, run);
  }

  int64_t row_length() const { return points_of<kInputs + kOutputs>(reduced_); }

  std::array<const Scalar*, kInputs> inputs_{};
  std::array<Scalar*, kOutputs> outputs_{};
  At first_{};  // of each tensor: the element where all indices are zero
  std::vector<Loop<kInputs + kOutputs>> kept_;
  std::vector<Loop<kInputs + kOutputs>> reduced_;
};

}  // namespace millrace
