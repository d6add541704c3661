// Graph to TrainingGraph: the backward operators by reverse-mode differentiation. Tests: tests/autodiff/,
// tests/random/.
#pragma once

#include "autodiff/training_graph.h"
#include "ir/graph.h"

namespace millrace {

TrainingGraph differentiate(const Graph& graph);

}  // namespace millrace
