// Which candidates of a partition take a GPU equally long, as far as can be told without trying them. Test:
// tests/measure/timing_class_test.cpp
#pragma once

#include <string>

#include "candidates/candidates.h"

namespace millrace {

// Equal for candidates of one partition that are alike: what lies close together in memory runs along the same indices
// in every tensor, and threads share the work in the same way. What may differ is the order of the axes, and of the
// loops, that step over whole lines. Of products, by an algorithm of a library: its matrices are as large and
// transposed alike, whatever the distance of their rows; by the library's own choice, which depends on all that it is
// told: only where it is told the same.
std::string timing_class_text(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                              const Candidate& candidate);

}  // namespace millrace
