// TrainingGraph to Analysis (paper sections 3.1 to 3.3, A.4). Tests: tests/analysis/.
#pragma once

#include "analysis/analysis.h"
#include "autodiff/training_graph.h"
#include "millrace/result.h"

namespace millrace {

// The class of each operator. A dropout that is the only reader of a softmax belongs to it, as in the paper's "scaled
// softmax" row, and so does its gradient; every other operator has the class of its kind.
std::vector<OperatorClass> classify(const Graph& graph);

// `fast_memory_bytes` is the size of the cache from which a contraction may reuse words, for the I/O lower bound.
Result<Analysis> analyze(const TrainingGraph& training, int64_t fast_memory_bytes);

}  // namespace millrace
