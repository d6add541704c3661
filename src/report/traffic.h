// Which tensors move most bytes: what the launches of a plan read and write of each. Test:
// tests/report/traffic_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "plan/plan.h"

namespace millrace {

struct TensorTraffic {
  std::string tensor;
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int reads = 0;  // launches that read it
  int writes = 0;

  int64_t bytes() const { return read_bytes + written_bytes; }
};

// Most bytes first. Each launch moves each of its buffers once.
std::vector<TensorTraffic> tensor_traffic(const StepPlan& plan, const Candidates& candidates);

}  // namespace millrace
