// Checks a plan's results and gradients against the reference interpreter, on random inputs or given ones.
// Test: tests/python/optimize_test.py
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/plan_session.h"

namespace millrace {

struct PlanCheck {
  bool checked = false;                 // false: the program is too large for the reference
  double worst = 0;                     // the largest error, as a fraction of the tolerance
  std::string tensor;                   // that has it
  double seconds = 0;                   // estimate of the reference's time, from its flop
  double limit = 0;                     // seconds that it could take
  std::vector<std::string> not_finite;  // outputs of which the reference has no finite element
};

// Fails if an output differs from the reference by more than its storage type allows. float64: 1e-10 of the largest
// element (or the computed bound, if a gradient is nothing but rounding). float32: the bound that the reference
// computes. Half precisions: twice the root mean square error of the unfused program with every tensor rounded, over
// several draws of inputs. If there are enough draws in which rounding decides nothing (reference/decisions.h), only
// these count. A NaN or an infinity must be where the reference has one, or a value that the type cannot hold.
// `examples`: a file of inputs, as for take_given; empty: random.
Result<PlanCheck> check_plan(const LoadedPlan& loaded, PlanSession& session, double most_seconds,
                             const std::string& examples);

}  // namespace millrace
