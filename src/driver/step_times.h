// Times the steps of loaded plans in turns, so that a busy moment of the machine slows all of them down equally. Test:
// tests/python/budget_test.py
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

// The estimates for the sessions, each of which has its tensors. Ends by the deadline, assuming that a step takes as
// long as the one before; nothing if there is no time for one step of each.
Result<std::optional<std::vector<Estimate>>> time_steps(const std::vector<PlanSession*>& sessions, const Deadline& end);

}  // namespace millrace
