// (partition, layouts, kernel config) → CUDA C++ for NVRTC. Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one for each tensor of the partition, first its reads, then its writes. The config has a GpuShape.
KernelText generate_cuda_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                const KernelConfig& config);

// src/codegen/prelude/cuda_hardware.h and cuda_prelude.h, which precede a kernel.
std::string_view cuda_hardware();
std::string_view cuda_prelude();
// Both texts together.
std::string gpu_prelude();

}  // namespace millrace
