// Why each tensor of a plan has its layout: what the launches that touch it take with this layout and with the best
// other one. Test: tests/report/layout_reasons_test.cpp
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "measure/measurements.h"
#include "plan/plan.h"

namespace millrace {

inline constexpr double kNoTime = std::numeric_limits<double>::infinity();

enum class LayoutChoice {
  callers,     // the caller provides or expects it
  fastest,     // for the launches that touch the tensor
  for_others,  // slower for them, but their other tensors gain
  only,        // nothing else was measured, or conversions make several
  estimated,   // not even this layout was measured for all launches that touch the tensor
};

struct LayoutReason {
  std::string tensor;
  std::string layout;  // as it is written or given
  std::string also;    // further layouts, made by conversions; may be empty
  int launches = 0;    // that touch it
  double seconds = 0;  // of these launches, each with its fastest candidate for this layout; kNoTime: not measured
  std::string other;   // the best other layout; empty: none was measured
  double other_seconds = kNoTime;
  LayoutChoice choice = LayoutChoice::only;
  std::string why;     // empty: nothing was measured
  std::string caller;  // its name for --layout: a gradient's tensor may be a sum with another name
};

// In the order of the plan's buffers. The times are the least that a layout can cost, because other tensors may have
// any layout.
std::vector<LayoutReason> layout_reasons(const StepPlan& plan, const Measurements& measurements);

}  // namespace millrace
