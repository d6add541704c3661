// Times of a loaded plan's passes and of each launch. Test: tests/python/gpu_test.py
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/plan_session.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;   // of inputs and masks
inline constexpr int64_t kLeastSamples = 6;  // for an interval

// Steps with idle gaps between them, in which a throttled GPU recovers its clock.
struct IdleGappedSteps {
  Estimate step;
  double relative_clock = 0;  // median
};

// A GPU's clock after steps.
struct GpuClock {
  std::optional<double> relative;              // relative to its highest: median
  std::optional<IdleGappedSteps> idle_gapped;  // if that is throttled
};
// Reads it after steps that were just timed. Idle-gapped steps take most of another second.
Result<GpuClock> gpu_clock(PlanSession& session);

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
  std::optional<double> relative_clock;  // of a GPU after steps: median
  // If that is throttled: candidates are measured at the full clock, so compare predictions with these.
  std::optional<IdleGappedSteps> idle_gapped;
};

// Times steps for about `seconds`, after some that warm the machine up, and at least as many as an interval needs.
// Idle-gapped steps take most of another second.
Result<PassTimes> time_passes(PlanSession& session, double seconds);

// Times each of these launches by itself, without warming up.
Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds);

}  // namespace millrace
