// Gives computed tensors the axes that their readers' reshapes and slices see. Tests: tests/frontend/views_test.cpp.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace millrace {

// Splits an axis of a computed tensor, and with it the indices of the operators that write and read it, where its
// readers see it as digits: (x @ w).reshape(B, T, H, D) becomes the product with axes H and D. Arguments and results
// keep the caller's shape. Does nothing to a program without reshapes, slices and joins.
void split_axes(Graph& graph);

// The copies that keep shape and order: one tensor that is two results.
std::set<std::string> whole_copies(const Graph& graph);

// Where an operator copies a computed tensor only to merge axes, or because it was not known to be in order, lets the
// operator before it write the copy. The copies named in `kept` stay.
void absorb_copies(Graph& graph, const std::set<std::string>& kept);

}  // namespace millrace
