// Points of an operator's space and what its accesses touch there, by enumeration: shares no code with the compiler.
// Tests: tests/random/fused_rows_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace millrace::random_programs {

using Point = std::vector<int64_t>;  // one per index of a space

Point extents_of(const Graph& graph, const std::vector<DimId>& space);

// Moves to the next point in row-major order; false after the last, at the first again.
bool next_point(const Point& extents, Point& point);

bool is_in(const Region& region, const Point& point);

// The row-major element of the accessed tensor at a point; nothing if the position is outside.
std::optional<size_t> element_at(const Graph& graph, const Access& access, const Point& point);

// The words of a tensor that these operators read: the sum over their different accesses, at most all of its words.
// - It is not the size of the union: a kernel reads what two slices share once for each of them.
// - On each axis the positions are counted alone, so a diagonal counts as the square around it.
int64_t words_read(const Graph& graph, const std::vector<OperatorId>& members, TensorId tensor);

}  // namespace millrace::random_programs
