// Independent checks of a program's forward and backward: compares reverse mode with forward mode, and both with finite
// differences. Tolerances are computed error bounds. Tests: tests/random/random_programs_test.cpp.
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

// A check with a relative tolerance above this is too weak; few programs may have one.
inline constexpr double kLoose = 1e-6;

// Parses, verifies, differentiates, verifies, and checks the derivatives at arguments drawn from the seed; then fuses,
// and runs the checks of fused_check.h.
Verdict check_program(const std::string& text, uint64_t seed);

// Checks the derivatives alone: `training` against its own forward graph.
Verdict check_training(const Graph& forward, const TrainingGraph& training, uint64_t seed);

}  // namespace millrace::random_programs
