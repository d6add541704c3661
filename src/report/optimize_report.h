// What an optimization did and gained: for a newcomer, and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "measure/measurements.h"
#include "plan/plan.h"
#include "select/selection.h"

namespace millrace {

struct Optimized {
  std::string folder;
  std::string report;  // its file
  std::string device;
  size_t operators = 0;   // of the program, forward and backward
  size_t repeated = 0;    // in backward, instead of saving what they make
  size_t predicates = 0;  // comparisons that are saved instead of what they compare
  int64_t words_before = 0;
  int64_t words_after = 0;
  Exploration exploration;
  bool checked = false;
  double worst_error = 0;  // of what is allowed
  double reference_seconds = 0;
  double step_seconds = 0;  // measured
  double step_low = 0;
  double step_high = 0;
  std::optional<double> relative_clock;       // of a GPU, behind steps
  std::optional<double> idle_gapped_seconds;  // of steps with rests between them, where that is lower than the highest
  double idle_gapped_clock = 0;
};

std::string optimize_text(const StepPlan& plan, const Selection& selection, const Optimized& made);
std::string optimize_json(const StepPlan& plan, const Selection& selection, const Optimized& made);

}  // namespace millrace
