// A generated kernel: its source, and the arguments that it needs. The source contains nothing from the program text
// but integers: extents, strides and whole exponents. Test: tests/codegen/cpu_kernel_test.cpp, cuda_kernel_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/launch.h"
#include "ir/graph.h"

namespace millrace {

// A number that the kernel takes: a scalar argument of the program, or a constant.
struct KernelValue {
  TensorId scalar;
  double value = 0;
};

struct KernelText {
  std::string text;           // one function, whose name is the token MILLRACE_KERNEL
  int64_t scratch_bytes = 0;  // aligned to 64
  std::vector<KernelValue> values;
  std::vector<uint32_t> subsequences;  // Philox subsequences of its dropouts
  std::vector<GpuGrid> grids;          // on a GPU: its functions; their names begin with that token
};

}  // namespace millrace
