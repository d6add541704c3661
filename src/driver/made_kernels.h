// Records which compiled kernels of plans this user's Millrace made, in the user's cache. A plan may come from
// anywhere, so kernels next to it are executed only if they are recorded; all others are compiled again. Test:
// tests/driver/plan_folder_test.cpp
#pragma once

#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// Call it after the kernels were compiled, with their final hash and functions in the plan.
Result<Done> record_kernels(const StepPlan& plan);

// Whether kernels with this hash were made from these sources, for this machine, with these functions of its launches.
bool are_recorded(const StepPlan& plan);

}  // namespace millrace
