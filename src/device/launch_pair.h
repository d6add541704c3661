// Two launches that run in sequence as one: the copy of an operand, and the product that reads it. Test:
// tests/measure/unfolded_trials_test.cpp
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "device/gpu.h"

namespace millrace {

// Both get the same tensors, arguments and scratch.
class LaunchPair final : public GpuLaunch {
 public:
  LaunchPair(std::unique_ptr<GpuLaunch> first, std::unique_ptr<GpuLaunch> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void* state, void* scratch) override {
    if (Result<Done> ran = first_->run(tensors, arguments, state, scratch); !ran) return ran;
    return second_->run(tensors, arguments, state, scratch);
  }

  int64_t scratch_bytes() const override { return std::max(first_->scratch_bytes(), second_->scratch_bytes()); }

 private:
  std::unique_ptr<GpuLaunch> first_;
  std::unique_ptr<GpuLaunch> second_;
};

// What prepare() of a GPU returns for a launch with a kernel: the kernel alone, or the kernel that copies an operand
// together with the product that reads the copy.
template <class PrepareProduct>
Result<std::unique_ptr<GpuLaunch>> followed_by_product(Result<std::unique_ptr<GpuLaunch>> kernels, const Launch& launch,
                                                       const PrepareProduct& prepare_product) {
  if (!kernels || !launch.is_product()) return kernels;
  Result<std::unique_ptr<GpuLaunch>> product = prepare_product();
  if (!product) return product;
  return std::unique_ptr<GpuLaunch>(std::make_unique<LaunchPair>(std::move(*kernels), std::move(*product)));
}

}  // namespace millrace
