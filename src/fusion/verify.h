// Checks a fused graph against its training graph. Tests: tests/fusion/verify_test.cpp.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const TrainingGraph& training, const FusedGraph& fused);

}  // namespace millrace
