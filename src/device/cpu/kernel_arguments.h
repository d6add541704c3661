// What a generated CPU kernel is called with: as mr::Arguments of codegen/prelude/cpu_prelude.h, which is compiled on
// its own.
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
