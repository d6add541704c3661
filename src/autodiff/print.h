// A training graph as text: its graph, then the decisions about what backward reads.
#pragma once

#include <string>

#include "autodiff/training_graph.h"

namespace millrace {

std::string print(const TrainingGraph& training);

}  // namespace millrace
