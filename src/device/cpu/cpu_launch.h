// A launch that is ready to run on the CPU: it looks nothing up and allocates nothing but small
// objects of oneDNN.
// Test: tests/exec/cpu_executor_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "device/cpu/blas.h"
#include "device/launch.h"

namespace millrace {

// Memory that a launch needs besides its tensors, aligned to 64: its own scratch, and space for operands that it
// copies.
int64_t scratch_bytes(const Launch& launch);

class CpuLaunch {
 public:
  // `function`: the compiled kernel, if the launch has one.
  static Result<CpuLaunch> prepare(const Launch& launch, void* function);

  // `tensors`: by position. `scratch`: scratch_bytes(), aligned to 64.
  void run(void* const* tensors, const LaunchState& state, char* scratch) const;

  int64_t scratch_bytes() const { return scratch_bytes_; }
  int threads() const { return launch_.kernel.empty() ? launch_.gemm.threads : launch_.threads; }

 private:
  CpuLaunch() = default;
  const void* bias_at(void* const* tensors, char* scratch) const;

  Launch launch_;
  void* function_ = nullptr;
  std::optional<Gemm> gemm_;
  std::array<int64_t, 4> copied_at_{};  // in scratch: operands and biases
  int64_t gemm_scratch_at_ = 0;
  int64_t scratch_bytes_ = 0;
};

}  // namespace millrace
