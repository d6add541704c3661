// The step before optimization as a plan: every operator by itself, all tensors in the program's layouts. Test:
// tests/driver/baseline_test.cpp
#pragma once

#include "driver/selected_plan.h"
#include "driver/tuning.h"

namespace millrace {

struct Baseline {
  Prepared prepared;  // the program without fusion
  SelectedPlan selected;
  size_t unmeasured = 0;  // launches whose candidate was not measured: the model's choice
  size_t loops = 0;       // contractions as generated loops: no library computes them in the program's layouts
};

// Each operator has the fastest measured candidate under the program's layouts; if none is measured, the one that the
// model expects to be fastest. Fails with no_configuration if an operator has no candidate under these layouts.
Result<Baseline> make_baseline(const Tuned& tuned);

}  // namespace millrace
