// The independent checks of a program's forward and backward: reverse mode against forward mode, and both against
// finite differences. Tolerances are computed error bounds, not chosen numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "autodiff/training_graph.h"
#include "ir/graph.h"

namespace millrace::random_programs {

struct Verdict {
  std::optional<std::string> complaint;  // nothing: all checks passed
  double looseness = 0;                  // the tolerance, relative to the magnitudes that were compared
  size_t operators = 0;                  // of the forward graph
};

// A check whose tolerance is more than this much of what it compares hardly checks; few programs may be so.
inline constexpr double kLoose = 1e-6;

// Parses, verifies, differentiates, verifies, and checks the derivatives at arguments drawn from the seed; then fuses,
// and checks that as fused_check.h says.
Verdict check_program(const std::string& text, uint64_t seed);

// Checks the derivatives alone: `training` against its own forward graph.
Verdict check_training(const Graph& forward, const TrainingGraph& training, uint64_t seed);

}  // namespace millrace::random_programs
