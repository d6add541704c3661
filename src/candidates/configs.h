// The configs of one partition: what the files that enumerate them share. Tests: tests/candidates/enumerate_test.cpp,
// gemm_configs_test.cpp and attention_configs_test.cpp
#pragma once

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>

#include "candidates/enumerate.h"

namespace millrace {

// Of a GPU. Only the order of candidates depends on these two.
inline constexpr double kGpuBytesPerSecond = 3.5e12;
inline constexpr double kGpuLaunchSeconds = 2e-6;

// Keeps the most promising candidates, each once; some for every layout of every tensor, since neighbouring partitions
// may want it; and all whose tensors have their written layouts. Counts all.
class Collector {
 public:
  Collector(const std::vector<TensorDomain>& domains, PartitionCandidates& into, size_t most)
      : domains_(domains), into_(into), most_(most) {}

  void add(Candidate candidate);
  // Whether this is the first call with this candidate. One that represents several is looked up only once.
  bool is_new(const Candidate& candidate);
  // Adds one that is known to be new.
  void add_new(Candidate candidate);
  // Whether a candidate would be kept even if its layouts are not the written ones; others need only be counted.
  bool keeps(const std::vector<int>& layouts, double estimate) const;
  void count() { into_.configurations += 1; }
  void reject(std::string_view reason, double count = 1);
  void finish();

 private:
  void shrink();

  const std::vector<TensorDomain>& domains_;
  PartitionCandidates& into_;
  size_t most_;
  size_t kept_ = 0;                                              // by the last call of shrink
  double worst_kept_ = std::numeric_limits<double>::infinity();  // worse ones are dropped
  std::vector<std::map<int, double>> worst_of_;                  // by tensor and layout: likewise
  std::unordered_set<std::string> seen_;
};

// For each axis of a partition's tensor the index of the partition's space that it runs along, or kNoIndex.
std::vector<int> indices_of(const Graph& graph, const Partition& partition, TensorId tensor);

enum class KernelLayouts { all, written };

void kernel_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                    KernelLayouts allowed, PartitionCandidates& into, Collector& collector);

// What the shapes of a nest on a GPU depend on.
struct GpuNest {
  bool rows = false;
  bool lanes = false;           // the vector runs across rows
  bool reduces = false;         // inside a row
  bool reduces_across = false;  // across rows
  int64_t row_points = 1;       // of the longest row
  int64_t vector_extent = 1;
  int64_t element_bytes = 4;  // of the narrowest tensor
};
// The shapes in which a GPU's threads can share it.
std::vector<GpuShape> gpu_shapes(const GpuNest& nest, const GpuTarget& target);
// The most elements that one access can load or store.
int widest_access(int64_t element_bytes);
inline constexpr int kMostBlocksPerMultiprocessor = 4;  // that share rows

// How many neighbours a thread processes at once: `width`, halved until it divides the extent.
int64_t width_along(const GpuShape& shape, int64_t extent);

void gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& into, Collector& collector);

void attention_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                       PartitionCandidates& into, Collector& collector);

}  // namespace millrace
