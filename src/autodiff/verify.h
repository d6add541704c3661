// What a training graph must satisfy, besides what its graph must.
#pragma once

#include "autodiff/training_graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const TrainingGraph& training);

}  // namespace millrace
