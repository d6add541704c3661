// The configs of one partition: what the files that enumerate them share. Tests: tests/candidates/enumerate_test.cpp,
// gemm_configs_test.cpp, attention_configs_test.cpp and candidate_source_test.cpp
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "candidates/enumerate.h"

namespace millrace {

// Speeds of a core and of a GPU. Only the order of candidates depends on these.
inline constexpr double kCpuBytesPerSecond = 8e9;
inline constexpr double kGpuBytesPerSecond = 3.5e12;
inline constexpr double kGpuLaunchSeconds = 2e-6;

// Keeps the most promising candidates, each once; some for every layout of every tensor, since neighbouring partitions
// may want it; and all whose tensors have their written layouts. Counts all.
class Collector {
 public:
  // How many candidates it keeps: in all, and for each layout of each tensor.
  struct Kept {
    size_t most = 0;
    size_t per_layout = 64;
  };

  Collector(const std::vector<TensorDomain>& domains, PartitionCandidates& into, const Kept& kept)
      : domains_(domains), into_(into), most_(kept.most), per_layout_(kept.per_layout) {}

  void add(Candidate candidate);
  // Whether this is the first call with this candidate. A candidate that represents several is looked up only once.
  bool is_new(const Candidate& candidate);
  // Adds one that is known to be new.
  void add_new(Candidate candidate);
  // Whether a candidate would be kept even if its layouts are not the written ones; others need only be counted.
  bool keeps(const std::vector<int>& layouts, double estimate) const;
  // Whether a candidate with this estimate may be among the most promising ones.
  bool is_promising(double estimate) const { return into_.candidates.size() < most_ || estimate < worst_kept_; }
  // The share of the candidates looked up by is_new that were new.
  double share_of_new() const { return lookups_ > 0 ? static_cast<double>(seen_.size()) / lookups_ : 1; }
  void count() { into_.configurations += 1; }
  void reject(std::string_view reason, double count = 1);
  // Drops what need not be kept. More may be added afterwards.
  void finish() { shrink(); }

 private:
  void shrink();

  const std::vector<TensorDomain>& domains_;
  PartitionCandidates& into_;
  size_t most_;
  size_t per_layout_;
  double lookups_ = 0;
  size_t kept_ = 0;                                              // by the last call of shrink
  double worst_kept_ = std::numeric_limits<double>::infinity();  // worse ones are dropped
  std::vector<std::map<int, double>> worst_of_;                  // the same by tensor and layout
  std::unordered_set<std::string> seen_;
};

// A candidate's layouts and config as bytes, to find duplicates.
std::string key_of(const Candidate& candidate);

// The candidates of a partition in groups of layouts, so that they need not all be listed. Two groups may have
// candidates in common.
class ConfigGroups {
 public:
  ConfigGroups() = default;
  ConfigGroups(const ConfigGroups&) = delete;
  ConfigGroups& operator=(const ConfigGroups&) = delete;
  virtual ~ConfigGroups() = default;

  virtual size_t count() const = 0;
  // An upper bound on the combinations of layouts in a group, which is how long adding them takes.
  virtual double combinations(size_t group) const = 0;
  // Roughly the lowest estimate of its candidates; infinite if it has none. Cheap to compute.
  virtual double bound(size_t group) = 0;
  // Layouts that its candidates may have, by tensor of the partition. Those that every group has may be left out.
  virtual std::vector<std::vector<int>> layouts(size_t group) const = 0;
  // Whether it may have candidates whose tensors have their written layouts.
  virtual bool may_be_written(size_t group) const = 0;
  virtual void add(size_t group, Collector& into) = 0;
  // Counts rejections that belong to no group.
  virtual void reject_others(Collector& into) const = 0;
};

// For each axis of a partition's tensor the index of the partition's space that it runs along, or kNoIndex.
std::vector<int> indices_of(const Graph& graph, const Partition& partition, TensorId tensor);

enum class KernelLayouts { all, written };

// Adds the candidates of all groups to a partition; if there are too many for the options, only the most promising
// ones, and counts the others by a sample.
void list_configs(ConfigGroups& groups, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& partition);

// The groups of a partition's candidates: those of a library, if the partition is a contraction. The arguments must
// outlive the groups.
std::unique_ptr<ConfigGroups> config_groups(const Graph& graph, const std::vector<TensorDomain>& domains,
                                            const EnumerateOptions& options, const Partition& partition);

std::unique_ptr<ConfigGroups> kernel_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                             const EnumerateOptions& options, KernelLayouts allowed,
                                             const Partition& partition);

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

std::unique_ptr<ConfigGroups> gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                           const EnumerateOptions& options, const Partition& partition);

std::unique_ptr<ConfigGroups> attention_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                                const EnumerateOptions& options, const Partition& partition);

}  // namespace millrace
