// Which partitions together make a whole: the alternatives of every choice point.
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

struct ChoicePointRules {
  std::vector<size_t> choice_point_of;            // one an operator: those of one choice point have one number
  std::vector<std::vector<std::string>> bundles;  // partitions, by name, of which either all run or none
  std::vector<OperatorId> absorbable;             // operators that some product with an epilogue does
  std::vector<OperatorId> optional;               // operators that need not be carried out
};

inline constexpr size_t kMostAlternatives = 64;  // of a choice point

bool has(const std::vector<OperatorId>& operators, OperatorId op);

// The operators that are in both.
std::vector<OperatorId> common(const std::vector<OperatorId>& one, const std::vector<OperatorId>& other);

// `partitions`: in an order in which every cover can run. The first alternative of a choice point is the fused one,
// with contractions apart.
std::vector<ChoicePoint> find_choice_points(const std::vector<PartitionCandidates>& partitions,
                                            const std::vector<FusedOperator>& groups, const ChoicePointRules& rules);

}  // namespace millrace
