// Conversions to try: between which layouts of which tensors, and by which trials. Tensors that are converted alike are
// converted between the same layouts: what one's takes, all take.
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

// That are converted alike.
struct EqualTensors {
  std::string text;     // of their conversion
  Partition partition;  // of the first one
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
  // The ways from one layout of a tensor to another.
  using Configs = std::function<PartitionCandidates(TensorId, int from, int to)>;

  // Of a pair of layouts, `most` ways are tried. What is referred to lives longer.
  ConversionTrials(const Graph& graph, const Candidates& candidates, Configs configs, size_t most,
                   PartitionClasses& classes);

  const std::vector<EqualTensors>& equal_tensors() const { return equal_tensors_; }
  // The conversions there may be between layouts in which it is written, or the caller gives it, and those in which
  // it is read, or the caller expects it.
  std::vector<std::pair<int, int>> between(TensorId tensor, std::set<int> written, std::set<int> read) const;
  // For the tensor and all that are equal, once.
  void add(TensorId tensor, int from, int to);
  const std::vector<ConversionTrial>& added() const { return added_; }
  double configurations() const { return configurations_; }
  // By the model, which takes all of a tensor's conversions to be alike.
  double expected(TensorId tensor, int from, int to);

 private:
  void find_equal_tensors(const Graph& graph);
  bool can_convert(TensorId tensor, int from, int to) const;
  void add_one(TensorId tensor, int from, int to);

  const Candidates& candidates_;
  Configs configs_;
  size_t most_;
  PartitionClasses& classes_;
  std::vector<EqualTensors> equal_tensors_;
  std::set<std::tuple<TensorId, int, int>> converting_;            // that were added
  std::vector<std::unique_ptr<PartitionCandidates>> conversions_;  // pointed to by their trials
  std::vector<ConversionTrial> added_;
  double configurations_ = 0;
  std::map<TensorId, double> seconds_;  // expected
};

}  // namespace millrace
