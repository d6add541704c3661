// Selection → plan: launches in order, buffers, one arena. Test: tests/plan/build_test.cpp
#pragma once

#include <functional>
#include <string>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/launch.h"
#include "measure/measurements.h"
#include "millrace/result.h"
#include "plan/plan.h"
#include "select/selection.h"

namespace millrace {

struct PlanOptions {
  PlanProgram program;
  std::string version;  // of Millrace
  std::string device;
  std::string date;
  std::function<int64_t(const Launch&)> scratch_bytes;  // how much the device needs for a launch
};

// `measurements` must name partitions and tensors as `candidates` and the graph do. The compiling code later fills in
// the names of the kernels' functions and the shared object.
Result<StepPlan> build_plan(const TrainingGraph& training, const Candidates& candidates,
                            const Measurements& measurements, const Selection& selection, const PlanOptions& options);

}  // namespace millrace
