// (partition, layouts, config) → Launch. Test: tests/codegen/cpu_kernel_test.cpp, cuda_kernel_test.cpp
#pragma once

#include "candidates/candidates.h"
#include "device/launch.h"

namespace millrace {

// `layouts`: one for each tensor of the partition, first its reads, then its writes.
Launch lower(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts, const Config& config);

}  // namespace millrace
