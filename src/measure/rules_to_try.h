// The rules by which a partition's inputs are drawn. Test: tests/measure/rules_to_try_test.cpp
#pragma once

#include <vector>

#include "candidates/candidates.h"
#include "reference/draw_rules.h"

namespace millrace {

// The rules in the order in which they are tried: the next one is used if the outputs are not finite. The first has
// small integers for tensors that the partition compares for equality: numbers that are drawn independently are never
// equal, and all gradients of a maximum would be zero. The last has numbers from 0.25 to 1.
std::vector<DrawRules> rules_to_try(const Graph& graph, const DrawRules& rules, const Partition& partition);

}  // namespace millrace
