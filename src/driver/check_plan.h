// A plan's results and gradients against the reference interpreter, on drawn inputs.
#pragma once

#include <optional>
#include <string>

#include "driver/plan_session.h"

namespace millrace {

struct PlanCheck {
  bool checked = false;  // false: the program is too large for the reference
  double worst = 0;      // the largest error, as a fraction of what is allowed
  std::string tensor;    // where
  double seconds = 0;    // what the reference would take, by its flop
};

// An error where something lies farther from the reference than its storage type allows: float64 by 1e-10 of the
// largest element (or the computed bound, where a gradient is nothing but rounding); float32 by the bound that the
// reference computes for it; half precisions by twice the error of the same program unfused, every tensor rounded, root
// mean square over several draws: those that leave the program nothing to decide (reference/decisions.h), where there
// are some.
Result<PlanCheck> check_plan(const LoadedPlan& loaded, PlanSession& session, double most_seconds);

}  // namespace millrace
