#include "candidates/candidates.h"

#include <algorithm>

namespace millrace {

std::vector<TensorId> tensors_of(const Partition& partition) {
  std::vector<TensorId> tensors = partition.reads;
  tensors.insert(tensors.end(), partition.writes.begin(), partition.writes.end());
  return tensors;
}

int64_t narrowest_bytes(const Graph& graph, const Partition& partition) {
  int64_t bytes = 8;
  for (const TensorId tensor : tensors_of(partition)) {
    const DType dtype = graph.tensor(tensor).dtype;
    if (is_floating(dtype)) bytes = std::min(bytes, bytes_of(dtype));
  }
  return bytes;
}

bool has_written_layouts(const std::vector<TensorDomain>& domains, const Partition& partition,
                         const Candidate& candidate) {
  size_t k = 0;
  for (const std::vector<TensorId>* tensors : {&partition.reads, &partition.writes}) {
    for (const TensorId tensor : *tensors) {
      const int layout = candidate.layouts[k++];
      // The storage of an attention's mask does not depend on the other layouts.
      const bool mask = partition.kind == PartitionKind::attention && tensor == partition.attention.mask;
      if (!mask && layout != domains[tensor.at()].written()) return false;
    }
  }
  return true;
}

std::vector<Layout> layouts_of(const std::vector<TensorDomain>& domains, const Partition& partition,
                               const Candidate& candidate) {
  std::vector<Layout> layouts;
  const std::vector<TensorId> tensors = tensors_of(partition);
  for (size_t k = 0; k < tensors.size(); ++k)
    layouts.push_back(domains[tensors[k].at()].layouts[as_index(candidate.layouts[k])]);
  return layouts;
}

}  // namespace millrace
