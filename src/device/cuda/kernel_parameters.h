// The one parameter of every generated kernel, a struct by value, as the prelude of GPU kernels declares it:
//
//   void* tensors[max(1, T)]; double values[max(1, V)]; const GpuState* state; char* scratch;
//   uint32_t subsequences[max(1, S)];  natural alignment, padded to 8
//
// Pure arithmetic. Test: tests/device/cuda/kernel_parameters_test.cpp
#pragma once

#include <cstddef>
#include <vector>

#include "device/launch.h"

namespace millrace {

class KernelParameters {
 public:
  KernelParameters(size_t tensors, std::vector<LaunchNumber> numbers, const std::vector<uint32_t>& subsequences);

  // Writes what changes from run to run.
  void set(void* const* tensors, const double* arguments, const void* state, void* scratch);

  void* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<LaunchNumber> numbers_;
  size_t tensor_count_;
  size_t values_at_;
  size_t state_at_;
  std::vector<std::byte> bytes_;
};

// The value of a launch's scalar in this run.
double value_of(const LaunchNumber& number, const double* arguments);

}  // namespace millrace
