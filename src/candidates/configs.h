// The ways of one partition: shared between the two that enumerate them.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>

#include "candidates/enumerate.h"

namespace millrace {

// Of a GPU; only the order of candidates depends on them.
inline constexpr double kGpuBytesPerSecond = 3.5e12;
inline constexpr double kGpuLaunchSeconds = 2e-6;

// Keeps the most promising candidates, each once, some for every layout of every tensor, since the partitions before
// and behind may want it, and those where every tensor lies as the program writes it; counts all.
class Collector {
 public:
  Collector(const std::vector<TensorDomain>& domains, PartitionCandidates& into, size_t most)
      : domains_(domains), into_(into), most_(most) {}

  void add(Candidate candidate);
  // Whether it was not asked for before. What stands for several candidates need only be looked up once.
  bool is_new(const Candidate& candidate);
  // One that is not added twice: nothing is looked up.
  void add_new(Candidate candidate);
  // Whether one is kept even where its tensors do not lie as written; one that is not need only be counted.
  bool keeps(const std::vector<int>& layouts, double estimate) const;
  void count() { into_.configurations += 1; }
  void reject(std::string_view reason, double count = 1);
  void finish();

 private:
  void shrink();

  const std::vector<TensorDomain>& domains_;
  PartitionCandidates& into_;
  size_t most_;
  size_t kept_ = 0;                                              // by the last shrinking
  double worst_kept_ = std::numeric_limits<double>::infinity();  // no worse one is kept any more
  std::vector<std::map<int, double>> worst_of_;                  // nor of a tensor's layout, by tensor
  std::unordered_set<std::string> seen_;
};

// For each axis of a partition's tensor the index of the partition's space that it runs along, or kNoIndex.
std::vector<int> indices_of(const Graph& graph, const Partition& partition, TensorId tensor);

void kernel_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                    bool written_only, PartitionCandidates& into, Collector& collector);

// The shapes in which a GPU's threads can share a nest.
struct GpuNest {
  bool rows = false;
  bool lanes = false;      // the vector runs across rows
  bool reduces = false;    // inside a row
  bool across = false;     // across rows
  int64_t row_points = 1;  // of the longest row
  int64_t vector_extent = 1;
  int64_t element_bytes = 4;  // of the narrowest tensor
};
std::vector<GpuShape> gpu_shapes(const GpuNest& nest, const GpuTarget& target);
// Of elements that one access can take at most.
int widest_access(int64_t element_bytes);
inline constexpr int kMostBlocksAMultiprocessor = 4;  // that share rows

// How many neighbours a thread takes at once in the end: no rest may be left.
int64_t width_along(const GpuShape& shape, int64_t extent);

void gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& into, Collector& collector);

void attention_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                       PartitionCandidates& into, Collector& collector);

}  // namespace millrace
