// How a CPU's threads compute a fused attention: the tiles of scores that they keep in their caches.
// Test: tests/codegen/cpu_attention_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// Why the kernels of a CPU do not compute an attention; nothing if they do.
std::optional<std::string> why_not_on_cpu(const Graph& graph, const Attention& attention);

// The first is tried first. There are few, because similar tiles take similar times.
std::vector<CpuAttentionConfig> cpu_attention_configs(const Attention& attention, int threads);

// Seconds. `seen`: the share of the scores that a window leaves.
double estimate(const Graph& graph, const Attention& attention, const CpuAttentionConfig& config, double seen);

}  // namespace millrace
