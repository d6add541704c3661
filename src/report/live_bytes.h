// How much of the arena holds values while each launch runs. Test: tests/report/live_bytes_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace millrace {

struct LiveBytes {
  int64_t saved = 0;      // by forward for backward
  int64_t temporary = 0;  // of one pass

  int64_t all() const { return saved + temporary; }
};

// One per launch.
std::vector<LiveBytes> live_bytes(const StepPlan& plan);

// The launch at which most bytes are alive; 0 if there is none.
size_t peak_of(const std::vector<LiveBytes>& live);

// The arena's bytes, and how many bytes separate buffers would take with the same scratch memory.
std::string arena_text(const StepPlan& plan);

}  // namespace millrace
