// (partition, layouts, kernel config) → C++ for the machine's compiler. Test: tests/codegen/cpu_kernel_test.cpp
#pragma once

#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one for each tensor of the partition, first its reads, then its writes.
KernelText generate_cpu_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                               const KernelConfig& config);

// src/codegen/prelude/cpu_prelude.h and cpu_attention*.h, which precede the kernels of a batch.
std::string_view cpu_prelude();

}  // namespace millrace
