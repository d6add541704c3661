// Timing classes: candidates of a partition that should take equally long on a GPU. Whether they do is not measured.
// Test: tests/measure/timing_class_test.cpp
#pragma once

#include <string>

#include "candidates/candidates.h"

namespace millrace {

// Equal for candidates of one timing class.
// - Kernels: every tensor's cache lines run along the same indices, and threads share the work equally. The order of
// the
//   axes and loops that step over whole cache lines may differ.
// - Products with a named algorithm: the matrices have the same sizes and are transposed equally; their leading
//   dimensions may differ.
// - Products with the library's own choice, which depends on all arguments: the arguments are the same.
std::string timing_class_key(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                             const Candidate& candidate);

}  // namespace millrace
