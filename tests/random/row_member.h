// A member of a fused group as a graph of one row: its operator over the part of its space that is in the row, where
// outer indices have extent one. Each input is a separate tensor along indices of the operator, which the row fills
// element by element. So slices, windows and merged axes need no rules here.
// Tests: tests/random/fused_rows_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "random/points.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

// A tensor of the row's graph along some indices of the operator.
struct RowTensor {
  TensorId id;
  std::vector<size_t> along;  // in the order of the space
};

template <class Scalar>
struct RowLoad {
  RowTensor to;
  const Access* from = nullptr;                   // an input of the operator
  bool gathered = false;                          // `from` is the table of a gather, at the position of its id
  std::function<Scalar(const Point&)> generated;  // without `from`: a function of the point in the operator's space
};

struct RowStore {
  RowTensor from;
  const Access* to = nullptr;  // an output of the operator
};

template <class Scalar>
struct RowMember {
  Graph graph;
  std::vector<RowLoad<Scalar>> loads;
  std::vector<RowStore> stores;
};

// A gather becomes a copy of what its row reads, a scatter_add the sum of what it selects. Joins become chains of
// `where`, and so do operators that depend on the position in the whole tensor, which a row does not know. `outer` has
// one entry per index of the operator; `passed` one per tensor: an earlier member wrote it. Such an input runs along
// all indices, so that the row can check each point that reads it. Scalar is double or Bounded<53>.
template <class Scalar>
RowMember<Scalar> row_member(const Graph& graph, const Operator& op, const std::vector<bool>& outer,
                             const std::vector<bool>& passed, const RandomState& random);

}  // namespace millrace::random_programs
