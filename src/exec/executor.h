// What every executor does: runs a plan on the caller's tensors. Tests: tests/exec/cpu_executor_test.cpp,
// tests/exec/gpu_executor_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/denormals.h"
#include "millrace/result.h"

namespace millrace {

// The caller's memory, in the plan's layouts: one pointer per argument or result of the program, in order. A scalar
// argument is a double in host memory; its gradient's pointer is ignored. Forward saves values for backward in `saved`;
// a pass uses `workspace` for temporaries. Both must be aligned to 64 (on a GPU to 256) bytes; null: the executor's
// own.
struct CallersTensors {
  const void* const* arguments = nullptr;
  void* const* results = nullptr;
  const void* const* result_gradients = nullptr;
  void* const* argument_gradients = nullptr;
  void* saved = nullptr;
  void* workspace = nullptr;
  const void* random = nullptr;  // on a GPU: seed and step in device memory; null: the executor's own
};

// Whether an executor allocates an arena or works only in the caller's memory.
enum class ExecutorMemory { own, callers };

class Gpu;

// Executors are loaded once, with every launch prepared. A GPU's runs only enqueue work on its stream.
class Executor {
 public:
  virtual ~Executor() = default;

  // Sets the tensors for the following runs, in the device's memory. Gradients may be null if only forward runs.
  virtual Result<Done> bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) = 0;

  virtual Result<Done> forward() = 0;
  // Uses what forward saved and does not modify it.
  virtual Result<Done> backward() = 0;
  // Forward, then backward.
  virtual Result<Done> step() = 0;
  // One launch, in the plan's order: for timing.
  virtual Result<Done> launch(size_t number) = 0;

  // Whether the next runs flush denormal numbers. A GPU ignores this: it computes them at full speed.
  virtual void set_denormals(Denormals) {}

  // The device in whose memory the tensors are, and on whose stream runs are enqueued. Null: tensors are in host
  // memory, and a run ends when its work does.
  virtual Gpu* device() const { return nullptr; }
};

}  // namespace millrace
