// What candidates must satisfy with respect to their training graph: whatever a selection takes, a plan can be built
// from it. Test: tests/candidates/verify_test.cpp
#pragma once

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "millrace/result.h"

namespace millrace {

// Every candidate names allowed layouts and a config of its partition. Every combination of alternatives carries out
// each operator once (statistics at most once), reads only tensors that the caller or an earlier partition wrote, and
// writes all results.
Result<Done> verify(const TrainingGraph& training, const Candidates& candidates);

}  // namespace millrace
