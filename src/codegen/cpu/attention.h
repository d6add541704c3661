// (attention partition, layouts, config) → C++ on prelude/cpu_attention*.h. Test: tests/codegen/cpu_attention_test.cpp
//
// Requires: q, k, v, o and their gradients in one type, float32 or a half type, in any layouts; log_sums in float32. A
// mask must be that of a dropout. Sizes are arguments of templates, strides are numbers that the kernel takes.
#pragma once

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one for each tensor of the partition, its reads and then its writes.
KernelText generate_cpu_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                  const CpuAttentionConfig& config);

}  // namespace millrace
