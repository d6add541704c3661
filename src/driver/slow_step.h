// Why a step on the CPU takes several times its predicted time: a launch, denormal numbers, other processes, or the
// clock. Test: tests/driver/slow_step_test.cpp
#pragma once

#include <string>

#include "driver/plan_session.h"

namespace millrace {

inline constexpr double kFarSlowerThanPredicted = 5;

// The reasons that were found. A share of one in a million or less is not mentioned.
struct SlowStep {
  std::string launch;         // the one that exceeds its prediction by the most; empty: none exceeds it
  double launch_seconds = 0;  // measured
  double launch_predicted = 0;
  double denormal_share = 0;  // of the results' and gradients' elements, with denormals kept
  double others_cores = 0;    // that other processes used
  std::string governor;       // of the clock; empty: unknown
};

// The reasons as sentences.
std::string explained(const SlowStep& found);

// Whether examining a step that takes so long ends in the time that is left.
bool has_time_to_examine(double step_seconds, double left);

// Runs some more steps. The session has its tensors; it flushes denormals again afterwards.
Result<SlowStep> examine_slow_step(PlanSession& session, const LoadedPlan& loaded);

// The share of a tensor's elements that its type, or float32 if that is wider, holds only as denormals.
double denormal_share(DType dtype, const std::vector<double>& values);

}  // namespace millrace
