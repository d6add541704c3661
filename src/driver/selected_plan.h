// What was measured, selected and laid out as a plan that is not written down yet.
#pragma once

#include "driver/tuning.h"
#include "plan/plan.h"
#include "select/selection.h"

namespace millrace {

struct SelectedPlan {
  Selection selection;
  StepPlan plan;
};

Result<SelectMethod> method_named(const std::string& name);

Result<SelectedPlan> select_plan(const Tuned& tuned, SelectMethod method);

}  // namespace millrace
