// A loaded plan's times: the passes in whole, and launch by launch.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;  // of the inputs and the masks
inline constexpr double kFullClock = 0.98;  // a relative clock that is no lower counts as the highest

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
  double clock = 1;  // behind steps, by the device's highest: median
};

// Steps for about `seconds`, behind some that warm the machine up, and at least as many as an interval takes.
Result<PassTimes> time_passes(PlanSession& session, double seconds);

// What a plan's step is expected to take at such a clock: ways are measured one by one, at the highest. Products and
// attentions take longer by as much as it is lower; what moves data does not.
double predicted_at(const LoadedPlan& loaded, double clock);

// The same with each of these launches timed by itself; without warming up.
Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds);

}  // namespace millrace
