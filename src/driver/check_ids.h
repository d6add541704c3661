// Refuses ids outside their table: NumPy does, but kernels clamp them. Test: tests/driver/check_ids_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

// An argument whose elements all are ids of a gather or scatter_add. Ids that the program slices or copies first are
// not checked.
struct IdArgument {
  std::string name;
  TensorId tensor;
  size_t position = 0;  // among the arguments
  DType dtype = DType::int64;
  int64_t elements = 0;
  int64_t rows = 0;  // that they select from
};

std::vector<IdArgument> id_arguments(const Graph& graph);

Result<Done> check_ids(const IdArgument& argument, const std::vector<double>& values);
// In host memory, in any order without padding.
Result<Done> check_ids(const IdArgument& argument, const void* memory);

}  // namespace millrace
