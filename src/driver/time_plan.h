// A loaded plan's times: the passes in whole, and launch by launch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;  // of the inputs and the masks

// Steps of which none follows another at once.
struct IdleGappedSteps {
  Estimate step;
  double relative_clock = 0;  // median
};

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
  std::optional<double> relative_clock;  // of a GPU, behind steps: median
  // Where that is lower than the highest, at which ways are measured: what is predicted is to be held against these.
  std::optional<IdleGappedSteps> idle_gapped;
};

// Steps for about `seconds`, behind some that warm the machine up, and at least as many as an interval takes. Rested
// ones take most of a second more.
Result<PassTimes> time_passes(PlanSession& session, double seconds);

// The same with each of these launches timed by itself; without warming up.
Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds);

}  // namespace millrace
