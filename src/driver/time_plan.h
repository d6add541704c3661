// A loaded plan's times: the passes in whole, and launch by launch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;  // of the inputs and the masks

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
  std::optional<double> relative_clock;  // of a GPU, behind steps: median
};

// Steps for about `seconds`, behind some that warm the machine up, and at least as many as an interval takes.
Result<PassTimes> time_passes(PlanSession& session, double seconds);

// What a plan's step is expected to take at a clock that is lower than the highest, at which its ways were measured one
// by one: products and attentions take longer by as much, what moves data does not. Nothing where it is not lower.
std::optional<double> predicted_at(const LoadedPlan& loaded, std::optional<double> relative_clock);

// The same with each of these launches timed by itself; without warming up.
Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds);

}  // namespace millrace
