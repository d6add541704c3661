// A generated kernel: its source, and what it must be called with. Nothing of the program text is in the source but
// integers: extents, strides and whole exponents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/launch.h"
#include "ir/graph.h"

namespace millrace {

// A number that the kernel is given: a scalar argument's, or a known one.
struct KernelValue {
  TensorId scalar;
  double value = 0;
};

struct KernelText {
  std::string text;           // one function, whose name is the token MILLRACE_KERNEL
  int64_t scratch_bytes = 0;  // that it wants, aligned to 64
  std::vector<KernelValue> values;
  std::vector<uint32_t> subsequences;  // of the dropouts that it draws
  std::vector<GpuGrid> grids;          // on a GPU: its functions, whose names begin with that token
};

}  // namespace millrace
