// FusedGraph → Candidates. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"
#include "millrace/result.h"

namespace millrace {

// What kernels on a GPU are made for.
struct GpuTarget {
  int multiprocessors = 132;
  int64_t shared_bytes = 232'448;  // that a block may ask for
  bool wgmma = true;               // products of a warpgroup: only Hopper has them
};

struct EnumerateOptions {
  int threads = 1;
  std::optional<GpuTarget> gpu;                              // there: partitions and ways on a GPU, and no others
  std::vector<GemmLibrary> libraries;                        // that the device has
  std::map<GemmLibrary, std::string> missing;                // why the others are not there
  std::vector<std::pair<std::string, std::string>> layouts;  // the caller's, as pins.h says
  size_t most = 4000;                                        // candidates kept of a partition, the most promising ones
  bool every_shape = false;  // of a GPU's threads; otherwise the first under any but the written layouts
};

// Partitions, covers and domains, without the ways: quick.
Result<Candidates> find_partitions(const TrainingGraph& training, const FusedGraph& fused,
                                   const EnumerateOptions& options);

// The ways of one partition, which has none yet.
void find_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& partition);

// With all ways.
Result<Candidates> enumerate(const TrainingGraph& training, const FusedGraph& fused, const EnumerateOptions& options);

// All ways under the layouts of one: on a GPU, a partition's candidates have only the first.
std::vector<Candidate> ways_under(const Graph& graph, const std::vector<TensorDomain>& domains,
                                  const EnumerateOptions& options, const Partition& partition,
                                  const std::vector<int>& layouts);

// Whether it is one of the partition's candidates, on a device with both libraries and as many threads as it names. Of
// a conversion partition: of its tensor's conversions.
bool is_candidate(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                  Candidate candidate);

// The ways from one layout of a tensor to another, most promising first.
PartitionCandidates conversions(const Graph& graph, const TensorDomain& domain, TensorId tensor, int from, int to,
                                int threads, const std::optional<GpuTarget>& gpu = std::nullopt);

}  // namespace millrace
