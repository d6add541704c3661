// How long a candidate takes at least: the bytes that it must read and write, and the flop of its contractions, at the
// processor's ceilings. Unlike an expectation, this is a bound: no candidate is faster. Test:
// tests/measure/lower_bounds_test.cpp
#pragma once

#include <map>
#include <vector>

#include "candidates/candidates.h"
#include "device/cpu/ceilings.h"
#include "measure/trial.h"

namespace millrace {

class LowerBounds {
 public:
  // `threads`: of library calls and conversions. All references must outlive this.
  LowerBounds(const Graph& graph, const std::vector<TensorDomain>& domains, const Ceilings& ceilings,
              const TrialSettings& trial, int threads)
      : graph_(graph), domains_(domains), ceilings_(ceilings), trial_(trial), threads_(threads) {}

  double seconds(const Partition& partition, const Candidate& candidate);
  // The lower bound of every candidate of the partition, listed or not.
  double seconds(const Partition& partition);
  double conversion_seconds(TensorId tensor, int from, int to);
  // A measured candidate: if it took less time than its bound, the ceilings are too low, and all bounds are lowered.
  void note(const Partition& partition, const Candidate& candidate, double measured);

 private:
  // The work that no candidate of a partition can avoid.
  struct Demand {
    std::vector<size_t> whole;  // the tensors, by position, every byte of which is read or written
    double flop = 0;
  };

  const Demand& demand_of(const Partition& partition);
  // `bytes`: gives the bytes of a tensor, by its position.
  template <class Bytes>
  double seconds(const Partition& partition, const Bytes& bytes, int threads);
  double at_ceilings(double moved, double all, double flop, int threads) const;

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const Ceilings& ceilings_;
  const TrialSettings& trial_;
  const int threads_;
  double lowered_ = 1;                          // the bounds are divided by this
  std::map<const Partition*, Demand> demands_;  // the partitions' addresses do not change
};

}  // namespace millrace
