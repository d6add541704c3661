// A plan as a JSON file: schema_version 1, with a hash over all the rest. What is read is untrusted: it must still be
// verified against the program that it names. Test: tests/plan/plan_json_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

inline constexpr int64_t kPlanBytes = int64_t{64} << 20;  // a larger file is no plan

std::string plan_json(const StepPlan& plan);

// `file` is for complaints alone.
Result<StepPlan> parse_plan(std::string_view text, const std::string& file);

}  // namespace millrace
