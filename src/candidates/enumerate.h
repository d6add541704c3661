// FusedGraph → Candidates. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "base/deadline.h"
#include "base/stored_type.h"
#include "base/target.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"
#include "millrace/result.h"

namespace millrace {

struct EnumerateOptions {
  int threads = 1;
  Target target;
  std::vector<GemmLibrary> libraries;                        // of the device
  std::map<GemmLibrary, std::string> missing;                // why the others are missing
  std::set<std::pair<GemmLibrary, StoredType>> lacking;      // types that a library does not multiply on the device
  std::vector<std::pair<std::string, std::string>> layouts;  // pinned by the caller (pins.h)
  size_t most = 4000;                                        // candidates kept per partition, the most promising ones
  bool every_shape = false;  // of a GPU's threads; otherwise only the first, except under the written layouts
  // A partition with more combinations of layouts than this is listed in part, the most promising candidates first, and
  // its candidates are counted by a sample. CandidateSource yields the rest.
  double most_combinations = std::numeric_limits<double>::infinity();
  // When listing should be done. Partitions that are listed when most of the time has passed get fewer candidates.
  Deadline deadline = Deadline::never();
};

// Partitions, choice points and domains, without configs: quick.
Result<Candidates> find_partitions(const TrainingGraph& training, const FusedGraph& fused,
                                   const EnumerateOptions& options);

// Adds the candidates of one partition, which has none yet.
void find_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& partition);

// Partitions with their candidates.
Result<Candidates> enumerate(const TrainingGraph& training, const FusedGraph& fused, const EnumerateOptions& options);

// All configs under given layouts. On a GPU, a partition lists only the first of them.
std::vector<Candidate> configs_under(const Graph& graph, const std::vector<TensorDomain>& domains,
                                     const EnumerateOptions& options, const Partition& partition,
                                     const std::vector<int>& layouts);

// Whether it is one of the partition's candidates, on a device that has the library and the threads that it names. The
// candidates of a conversion partition are the conversions of its tensor.
bool is_candidate(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                  Candidate candidate);

// The kernels that convert a tensor from one layout to another, most promising first.
PartitionCandidates conversions(const Graph& graph, const TensorDomain& domain, TensorId tensor, int from, int to,
                                int threads, const Target& target = {});

}  // namespace millrace
