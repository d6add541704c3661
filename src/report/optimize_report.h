// What an optimization did and gained, for a newcomer and as JSON.
// Test: tests/python/optimize_test.py
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/measurements.h"
#include "millrace/result.h"
#include "plan/plan.h"
#include "select/selection.h"

namespace millrace {

// The median time of a step, and its confidence interval.
struct StepSeconds {
  double median = 0;
  double low = 0;
  double high = 0;
};

struct Optimized {
  std::string folder;
  std::string report;     // its file
  bool replaced = false;  // a plan that was in the folder before
  std::string device;
  size_t operators = 0;   // of the program, forward and backward
  size_t repeated = 0;    // recomputed in backward instead of saving their outputs
  size_t predicates = 0;  // comparisons whose results are saved as bits instead of their operands
  int64_t words_before = 0;
  int64_t words_after = 0;
  Exploration exploration;
  bool checked = false;    // the whole step
  double worst_error = 0;  // as a fraction of the allowed error
  double reference_seconds = 0;
  double check_limit = 0;                     // seconds that were left for the check
  std::vector<std::string> not_finite;        // outputs of which the reference has no finite element
  size_t unchecked = 0;                       // launches that were not checked by themselves
  std::optional<StepSeconds> before;          // a measured step before optimization
  std::optional<StepSeconds> step;            // of the selected plan
  std::string not_timed;                      // why one of these is missing
  size_t loops_before = 0;                    // contractions of that step that run as generated loops
  bool baseline_kept = false;                 // the selected plan was slower than the step before optimization
  std::string disturbance;                    // what disturbed the times; empty: nothing known
  std::string why_slow;                       // of a step far slower than predicted; empty: it is not
  std::optional<double> relative_clock;       // of a GPU, after the steps
  std::optional<double> idle_gapped_seconds;  // of steps with idle gaps between them, if the clock is below the highest
  double idle_gapped_clock = 0;
  std::vector<Diagnostic> warnings;  // of the program
};

std::string optimize_text(const StepPlan& plan, const Selection& selection, const Optimized& made);
std::string optimize_json(const StepPlan& plan, const Selection& selection, const Optimized& made);

}  // namespace millrace
