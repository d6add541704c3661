// How long a library should take for a product. Only the order of candidates depends on it.
// Test: tests/candidates/gemm_configs_test.cpp
#pragma once

#include "candidates/candidates.h"

namespace millrace {

struct GemmWork {
  double m = 1;
  double n = 1;
  double k = 1;
  double calls = 1;
  bool unit_strides = true;    // every matrix has an index of stride 1
  double copied_elements = 0;  // of the operand that is unfolded
};

class GemmCost {
 public:
  GemmCost(const Graph& graph, const Product& product, int threads);

  double seconds(const GemmWork& work, bool threads_over_loops) const;
  double seconds_on_gpu(const GemmWork& work, bool tensor_cores) const;

 private:
  double threads_;
  double element_bytes_;     // of the result
  double bytes_ = 0;         // moved around the product on a CPU
  double bytes_on_gpu_ = 0;  // moved by the product and around it
};

}  // namespace millrace
