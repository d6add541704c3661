// Measurements to a plan in memory: selection and planning. Test: tests/python/optimize_test.py
#pragma once

#include "driver/tuning.h"
#include "plan/plan.h"
#include "select/select.h"

namespace millrace {

struct SelectedPlan {
  Selection selection;
  StepPlan plan;
};

Result<SelectMethod> method_named(const std::string& name);

Result<SelectedPlan> select_plan(const Tuned& tuned, SelectMethod method, const SelectLimits& limits = {});

}  // namespace millrace
