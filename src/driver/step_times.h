// Times the steps of loaded plans side by side, in turns, so that a busy moment of the machine costs each of them the
// same. Test: tests/driver/step_times_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

// For each session, which has its tensors; nothing for all of them if not even one step of each fits. At most about
// `seconds`, and never longer than one step of each after the deadline.
Result<std::optional<std::vector<Estimate>>> time_steps(const std::vector<PlanSession*>& sessions, double seconds,
                                                        const Deadline& deadline);

}  // namespace millrace
