// Times the steps of loaded plans in turns, so that a busy moment of the machine slows all of them down equally. Test:
// tests/python/budget_test.py
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

// For each session, which has its tensors. Ends by the deadline if a step is as long as the one before; nothing if not
// even one step of each fits.
Result<std::optional<std::vector<Estimate>>> time_steps(const std::vector<PlanSession*>& sessions, const Deadline& end);

}  // namespace millrace
