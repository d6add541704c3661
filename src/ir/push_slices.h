// A slice of a map is a map of slices: only the elements that are read are computed. Tests:
// tests/frontend/views_test.cpp.
#pragma once

#include "ir/graph.h"

namespace millrace {

// Where every reader of an elementwise operator's output reads a slice of it, replaces the operator by one for each
// slice, unless that computes more elements; a reduction or contraction only if all read the same slice. Does nothing
// to a program without slices. Changes only operators of this pass, and none that writes a result of the program or one
// of these tensors.
void push_slices(Graph& graph, Pass pass, const std::vector<TensorId>& needed);

}  // namespace millrace
