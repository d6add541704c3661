// Lays out a task: which indices it has, and how each operand moves along them. Test: tests/oracle/oracle_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "oracle/task.h"

namespace millrace {

// How far an operand's element moves with each index, and the element where all are zero.
struct Walk {
  std::vector<int64_t> strides;
  int64_t first = 0;
};

// Row-major along these indices, out of `extents.size()` indices.
Walk row_major(const std::vector<int64_t>& extents, const std::vector<size_t>& indices);

// The number of points of these indices.
int64_t points_of(const std::vector<int64_t>& extents, const std::vector<size_t>& indices);

// A task over the points of `outer`, each with the points of `inner`, the last index fastest. Operands have no address.
oracle::Task make_task(int formula, const std::vector<int64_t>& extents, const std::vector<size_t>& outer,
                       const std::vector<size_t>& inner, const std::vector<Walk>& inputs,
                       const std::vector<Walk>& outputs);

// A task over all elements of row-major operands.
oracle::Task make_flat_task(int formula, int64_t elements, size_t inputs, size_t outputs);

}  // namespace millrace
