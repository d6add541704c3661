// The layout conversions to try. Tensors of equal shape and type share their conversions, which take equally long.
// Test: tests/measure/partition_classes_test.cpp
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "candidates/candidates.h"
#include "measure/partition_classes.h"

namespace millrace {

// Tensors with the same conversions.
struct EqualTensors {
  std::string text;     // of their conversion
  Partition partition;  // the first tensor's conversion
  std::vector<TensorId> tensors;
};

struct ConversionTrial {
  TensorId tensor;
  int from = 0;
  int to = 0;
  TrialId trial;
};

class ConversionTrials {
 public:
  // The candidates that convert a tensor from one layout to another.
  using Enumerate = std::function<PartitionCandidates(TensorId, int from, int to)>;

  // Tries at most `most` candidates per pair of layouts. All references must outlive this.
  ConversionTrials(const Graph& graph, const Candidates& candidates, Enumerate enumerate, size_t most,
                   PartitionClasses& classes);

  const std::vector<EqualTensors>& equal_tensors() const { return equal_tensors_; }
  // The possible conversions from a layout in which the tensor is written, or given by the caller, to one in which it
  // is read, or expected by the caller.
  std::vector<std::pair<int, int>> between(TensorId tensor, std::set<int> written, std::set<int> read) const;
  // Adds the conversion for the tensor and all equal tensors, unless it was added before.
  void add(TensorId tensor, int from, int to);
  // The same with all candidates, however many there are.
  void add_all(TensorId tensor, int from, int to);
  const std::vector<ConversionTrial>& added() const { return added_; }
  // The pairs of layouts whose candidates all have an outcome.
  std::set<std::tuple<TensorId, int, int>> settled() const;
  double configurations() const { return configurations_; }
  // The seconds that the model expects, the same for all conversions of a tensor.
  double expected(TensorId tensor, int from, int to);

 private:
  void find_equal_tensors(const Graph& graph);
  bool can_convert(TensorId tensor, int from, int to) const;
  void add_one(TensorId tensor, int from, int to);
  void add_rest(TensorId tensor, int from, int to);
  // The tensors that the conversion is added for.
  std::vector<TensorId> converted_with(TensorId tensor, int from, int to) const;

  const Candidates& candidates_;
  Enumerate enumerate_;
  size_t most_;
  PartitionClasses& classes_;
  std::vector<EqualTensors> equal_tensors_;
  std::set<std::tuple<TensorId, int, int>> converting_;                 // added so far
  std::vector<std::unique_ptr<PartitionCandidates>> conversions_;       // trials point to them
  std::map<std::tuple<TensorId, int, int>, PartitionCandidates> rest_;  // candidates that are not tried
  std::vector<ConversionTrial> added_;
  double configurations_ = 0;
  std::map<TensorId, double> seconds_;  // expected
};

}  // namespace millrace
