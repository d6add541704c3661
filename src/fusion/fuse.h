// TrainingGraph to FusedGraph (paper sections 4, A.2, A.5): maximal fusion by iteration spaces. Tests: tests/fusion/.
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"

namespace millrace {

// Merges groups of elementwise and normalization operators, starting with the merge that saves the most words, until no
// merge saves words or a launch. The result does not depend on the order of the operators in the graph.
FusedGraph fuse(const TrainingGraph& training);

// Every operator as a group of its own, without alternatives: the program before optimization.
FusedGraph leave_separate(const TrainingGraph& training);

// The number of each operator's group; fused.groups.size() if it is in none.
std::vector<size_t> group_numbers(const FusedGraph& fused);

// For every two neighbouring operators (one reads the other's output, or both read one tensor), whether they fused.
std::vector<PairExplanation> explain(const TrainingGraph& training, const FusedGraph& fused);

}  // namespace millrace
