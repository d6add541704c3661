// The end of `optimize`, within what is left of the budget: selects, times the plan against the step before
// optimization, checks it, and writes it. A plan that is slower, or that fails the check, is not written. Test:
// tests/python/budget_test.py
#pragma once

#include <optional>
#include <string>

#include "driver/baseline.h"
#include "driver/check_plan.h"
#include "driver/phases.h"
#include "driver/selected_plan.h"
#include "driver/time_plan.h"
#include "driver/tuning.h"
#include "measure/statistics.h"

namespace millrace {

struct FinishedPlan {
  SelectedPlan selected;         // the plan that is written: the selected one, or the one before optimization
  std::optional<Baseline> kept;  // the step before optimization, if its plan is the one that is written
  double selected_cost = 0;      // predicted seconds of a step of the selected plan, also if it is not the one written
  std::string folder;            // of the plan
  bool replaced = false;         // there was a plan in it
  std::string device;            // as PlanSession::device
  size_t unchecked = 0;          // launches of the plan whose candidate was never run by itself
  PlanCheck check;               // of the whole plan
  std::optional<Estimate> before;              // a step before optimization
  size_t loops_before = 0;                     // its contractions that no library computes in these layouts
  std::optional<Estimate> after;               // a step of the selected plan, also if it is not the one that is written
  std::string not_timed;                       // why a time is missing
  std::optional<double> relative_clock;        // of a GPU after the steps
  std::optional<IdleGappedSteps> idle_gapped;  // if that is throttled
  std::string disturbance;                     // what disturbed the times; empty: nothing known
  std::string why_slow;                        // of a step far slower than predicted; empty: it is not

  const StepPlan& plan() const { return selected.plan; }
};

// `examples`: a file of inputs for timing and checking, as for take_given; empty: random.
Result<FinishedPlan> finish(const Tuned& tuned, SelectMethod method, std::string folder, const std::string& examples,
                            Phases& phases);

}  // namespace millrace
