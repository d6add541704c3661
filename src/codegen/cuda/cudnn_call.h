// (attention partition, layouts) → the call of cuDNN that computes it. Test: tests/codegen/cudnn_call_test.cpp
#pragma once

#include "candidates/candidates.h"
#include "device/launch.h"

namespace millrace {

// Requires: cudnn_axes finds axes for these layouts.
AttentionCall cudnn_call(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts);

}  // namespace millrace
