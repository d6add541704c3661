// The caller's tensors of a plan: what they are called and how they lie in memory.
#pragma once

#include <vector>

#include "driver/plan_folder.h"
#include "ir/layout.h"
#include "plan/plan.h"

namespace millrace {

struct CallersTensor {
  std::string name;  // as the caller knows it; of a gradient d_NAME
  TensorId tensor;   // invalid: a scalar has no gradient
  Layout layout;
  int64_t bytes = 0;
};

struct CallersLists {
  std::vector<CallersTensor> arguments;
  std::vector<CallersTensor> results;
  std::vector<CallersTensor> result_gradients;
  std::vector<CallersTensor> argument_gradients;
};

CallersLists callers_lists(const LoadedPlan& loaded);

}  // namespace millrace
