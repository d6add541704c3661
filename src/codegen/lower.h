// (partition, layouts, way) → what a device is asked to run.
#pragma once

#include "candidates/candidates.h"
#include "device/launch.h"

namespace millrace {

// `layouts`: one a tensor of the partition, its reads and then its writes.
Launch lower(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts, const Config& config);

}  // namespace millrace
