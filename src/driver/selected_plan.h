// Measurements to a plan in memory: selection and planning. Test: tests/python/optimize_test.py
#pragma once

#include "driver/tuning.h"
#include "plan/build.h"
#include "plan/plan.h"
#include "select/select.h"

namespace millrace {

struct SelectedPlan {
  Selection selection;
  StepPlan plan;
};

// What a plan of this program says of its origin.
PlanOptions plan_options(const TuneProgram& program, const Machine& machine);

// Whether its time was measured, after a check against the reference: the interval of an estimate begins at zero.
bool is_measured(const MeasuredCandidate& candidate);

Result<SelectMethod> method_named(const std::string& name);

// Lowers the launches of a plan of this program, and writes it with their kernels to a folder.
Result<Done> write_lowered(const Prepared& prepared, const Machine& machine, StepPlan& plan, const std::string& folder);

Result<SelectedPlan> select_plan(const Tuned& tuned, SelectMethod method, const SelectLimits& limits = {});

}  // namespace millrace
