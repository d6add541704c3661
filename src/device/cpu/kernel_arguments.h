// The argument of a generated CPU kernel: the same as mr::Arguments of codegen/prelude/cpu_prelude.h, which is compiled
// separately.
// Test: tests/codegen/cpu_kernel_test.cpp
#pragma once

#include <cstdint>

namespace millrace {

struct KernelArguments {
  void* const* tensors;
  const double* values;
  const uint32_t* subsequences;
  uint64_t seed;
  uint32_t step;
  char* scratch;
};

using KernelFunction = void (*)(const KernelArguments*);

}  // namespace millrace
