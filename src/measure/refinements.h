// Ways that are no candidates until they are asked for: every algorithm of a product that the library's own choice was
// tried for, every shape of a kernel under layouts that are in question.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "candidates/candidates.h"
#include "measure/partition_classes.h"

namespace millrace {

class Refinements {
 public:
  // The other ways under a candidate's layouts. Null: all are candidates from the beginning.
  using Configs = std::function<std::vector<Candidate>(const Partition&, const Candidate&)>;

  // `exhaustive`: of products that are told the same but for distances, all algorithms of the first. What is referred
  // to lives longer.
  Refinements(const std::vector<TensorDomain>& domains, Configs configs, bool exhaustive, PartitionClasses& classes)
      : domains_(domains), configs_(std::move(configs)), exhaustive_(exhaustive), classes_(classes) {}

  // Every algorithm of the fastest products of a partition: what is learnt of them holds for others.
  void add_of_fastest();
  // Every way under a trial's layouts.
  void add_of(const TrialId& id);
  // Those of a class that were tried once, by their texts. Whether there is one that was no trial.
  bool add_tried(size_t partition_class, const std::vector<std::string>& texts);

 private:
  bool is_first_of_its_kind(size_t partition_class, const Trial& trial);
  std::string own_choice_text(const Partition& partition, Candidate candidate) const;
  size_t base_of(const TrialId& id) const;
  void refine(const TrialId& id);

  const std::vector<TensorDomain>& domains_;
  Configs configs_;
  bool exhaustive_;
  PartitionClasses& classes_;
  std::set<std::pair<size_t, std::string>> kinds_;  // class, and what a product is but for distances
  std::vector<size_t> looked_at_;                   // one a class: how many of its rows
  std::set<std::tuple<size_t, std::string, std::vector<int>>> refined_;  // class, product's text, layouts
};

}  // namespace millrace
