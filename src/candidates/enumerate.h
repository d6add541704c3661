// FusedGraph → Candidates. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"
#include "millrace/result.h"

namespace millrace {

struct EnumerateOptions {
  int threads = 1;
  std::vector<GemmLibrary> libraries;                        // that the device has
  std::map<GemmLibrary, std::string> missing;                // why the others are not there
  std::vector<std::pair<std::string, std::string>> layouts;  // the caller's: tensor, and its layout or "any"
  size_t most = 4000;                                        // candidates kept of a part, the most promising ones
};

Result<Candidates> enumerate(const TrainingGraph& training, const FusedGraph& fused, const EnumerateOptions& options);

// The ways from one layout of a tensor to another, most promising first.
PartCandidates conversions(const Graph& graph, const TensorDomain& domain, TensorId tensor, int from, int to,
                           int threads);

}  // namespace millrace
