// The byte model of generated kernels: how long one should take, and what is not worth trying on a GPU. Only the order
// of candidates depends on its seconds. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// A tensor of a partition that is a loop nest.
struct PartitionTensor {
  TensorId id;
  bool written = false;
  bool mask = false;           // it has layouts other than words
  std::vector<int> axes;       // the index along each axis
  std::vector<int> innermost;  // per layout of its domain: the index that has stride 1
  std::vector<double> bytes;   // per layout of its domain
  std::vector<int> by_order;   // per order of indices: the layout that follows it, or -1
};

class KernelCost {
 public:
  // `tensors`: the partition's reads, then its writes. The arguments must outlive it.
  KernelCost(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
             const std::vector<PartitionTensor>& tensors);

  double seconds(const std::vector<int>& layouts, const KernelConfig& config) const;
  double seconds_on_gpu(const std::vector<int>& layouts, const KernelConfig& config) const;

  // On a GPU: whether a conversion to another layout, before or after this kernel, saves more than it costs.
  bool should_convert(const std::vector<int>& layouts, const KernelConfig& config) const;
  // On a GPU: whether a large mask is generated along an index that has no unit stride in it.
  bool draws_across(const std::vector<int>& layouts, const KernelConfig& config) const;

  bool has_dropout() const { return has_dropout_; }

 private:
  const Layout& layout(size_t k, const std::vector<int>& layouts) const;
  int64_t extent(int index) const { return partition_.space[as_index(index)].extent; }
  double times_moved(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const;
  double times_drawn(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const;
  int beside_vector(const KernelConfig& config) const;

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const Partition& partition_;
  const std::vector<PartitionTensor>& tensors_;
  int64_t element_bytes_;  // of the narrowest tensor
  bool has_dropout_ = false;
};

}  // namespace millrace
