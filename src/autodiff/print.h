// A training graph as text: its graph, then how backward gets each forward tensor that it reads.
// Tests: tests/golden/golden_test.cpp.
#pragma once

#include <string>

#include "autodiff/training_graph.h"

namespace millrace {

std::string print(const TrainingGraph& training);

}  // namespace millrace
