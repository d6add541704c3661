#include "plan/plan.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {

int first_of_backward(const StepPlan& plan) {
  const auto first = std::find_if(plan.launches.begin(), plan.launches.end(),
                                  [](const PlanLaunch& launch) { return launch.pass == Pass::backward; });
  return static_cast<int>(first - plan.launches.begin());
}

std::string name_of(const PlanLaunch& launch) {
  return launch.partition.empty() ? concat("conversion of ", launch.conversion_of) : launch.partition;
}

std::string_view name_of(BufferLocation location) {
  switch (location) {
    case BufferLocation::arena: return "arena";
    case BufferLocation::argument: return "argument";
    case BufferLocation::result: return "result";
    case BufferLocation::result_gradient: return "result_gradient";
    case BufferLocation::argument_gradient: return "argument_gradient";
  }
  return "";
}

}  // namespace millrace
