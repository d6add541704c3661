// The ways of one part: shared between the two that enumerate them.
#pragma once

#include <functional>

#include "candidates/enumerate.h"

namespace millrace {

// Keeps the most promising candidates, each once, and counts all.
class Collector {
 public:
  Collector(PartCandidates& into, size_t most) : into_(into), most_(most) {}

  void add(Candidate candidate);
  void decline(const std::string& reason, double count = 1);
  void finish();

 private:
  void shrink();

  PartCandidates& into_;
  size_t most_;
};

// For each axis of a part's tensor the index of the part's space that it runs along, or kNoIndex.
std::vector<int> indices_of(const Graph& graph, const Part& part, TensorId tensor);

void kernel_ways(const Graph& graph, const std::vector<TensorDomain>& domains, int threads, bool written_only,
                 PartCandidates& into, Collector& collector);
void gemm_ways(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
               PartCandidates& into, Collector& collector);

// Whether some dropout of the part draws this mask, so that it is at hand in the kernel.
bool draws(const Graph& graph, const Part& part, TensorId mask);
// The dropout whose mask a tensor is, or nothing.
const Operator* dropout_of(const Graph& graph, TensorId mask);

}  // namespace millrace
