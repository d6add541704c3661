// Checks what a training graph must satisfy in addition to ir/verify.h. Tests: tests/autodiff/verify_test.cpp.
#pragma once

#include "autodiff/training_graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const TrainingGraph& training);

}  // namespace millrace
