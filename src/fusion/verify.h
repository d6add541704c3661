// What a fused graph must satisfy with respect to its training graph.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const TrainingGraph& training, const FusedGraph& fused);

}  // namespace millrace
