// A plan as a JSON file, with a schema_version and a hash of the rest. A plan that was read is untrusted: it must still
// be verified against the program in it. Test: tests/plan/plan_json_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

inline constexpr int64_t kPlanBytes = int64_t{64} << 20;  // a larger file is not a plan

std::string plan_json(const StepPlan& plan);

// `file` is only for messages.
Result<StepPlan> parse_plan(std::string_view text, const std::string& file);

}  // namespace millrace
