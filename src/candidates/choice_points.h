// Which partitions together carry out the step: the alternatives of every choice point.
// Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

struct ChoicePointRules {
  std::vector<size_t> choice_point_of;            // per operator: the number of its choice point
  std::vector<std::vector<std::string>> bundles;  // names of partitions of which either all run or none
  std::vector<OperatorId> absorbable;             // operators that some epilogue can absorb
  std::vector<OperatorId> optional;               // operators that need not be carried out
};

// Most alternatives of a choice point. An attention that computes rows of its operands ties the kernels that would
// otherwise compute them.
inline constexpr size_t kMostAlternatives = 64;
inline constexpr size_t kMostAlternativesWithRows = 128;
inline size_t most_alternatives(const Partition& partition) {
  return partition.attention.has_row_expressions() ? kMostAlternativesWithRows : kMostAlternatives;
}

bool has(const std::vector<OperatorId>& operators, OperatorId op);

// The operators that are in both.
std::vector<OperatorId> common(const std::vector<OperatorId>& one, const std::vector<OperatorId>& other);

// `partitions`: in an order in which every combination of alternatives can run. The first alternative of a choice point
// is the fused one, with separate contractions.
std::vector<ChoicePoint> find_choice_points(const std::vector<PartitionCandidates>& partitions,
                                            const std::vector<FusedOperator>& groups, const ChoicePointRules& rules);

}  // namespace millrace
