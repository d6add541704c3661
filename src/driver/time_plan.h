// A loaded plan's times: the passes in whole, and launch by launch.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;  // of the inputs and the masks

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
};

// Steps for about `seconds`, behind some that warm the machine up, and at least as many as an interval takes.
Result<PassTimes> time_passes(PlanSession& session, double seconds);

// The same with each of these launches timed by itself; without warming up.
Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds);

}  // namespace millrace
