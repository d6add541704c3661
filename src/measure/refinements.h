// Candidates that are added during exploration: every algorithm of a product for which the library's own choice was
// tried, and every shape of a kernel with promising layouts. Test: tests/measure/explore_test.cpp
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
  // The other candidates with a candidate's layouts. Null: nothing is added.
  using Enumerate = std::function<std::vector<Candidate>(const Partition&, const Candidate&)>;

  // An exhaustive search tries all algorithms for only one of the products that differ only in strides. All references
  // must outlive this.
  Refinements(const std::vector<TensorDomain>& domains, Enumerate enumerate, SearchMode mode, PartitionClasses& classes)
      : domains_(domains),
        enumerate_(std::move(enumerate)),
        exhaustive_(mode == SearchMode::exhaustive),
        classes_(classes) {}

  // Adds every algorithm of the fastest products of each class.
  void add_for_fastest();
  // Adds every candidate with a trial's layouts.
  void add_for(const TrialId& id);
  // Adds the refinements of a class that earlier runs tried, by text. Returns whether one of them is new.
  bool add_tried(size_t partition_class, const std::vector<std::string>& texts);

 private:
  bool is_first_of_its_kind(size_t partition_class, const Trial& trial);
  std::string library_choice_text(const Partition& partition, Candidate candidate) const;
  size_t base_of(const TrialId& id) const;
  void refine(const TrialId& id);

  const std::vector<TensorDomain>& domains_;
  Enumerate enumerate_;
  bool exhaustive_;
  PartitionClasses& classes_;
  std::set<std::pair<size_t, std::string>> kinds_;                       // class, and a product without its strides
  std::vector<size_t> looked_at_;                                        // by class: how many rows there were
  std::set<std::tuple<size_t, std::string, std::vector<int>>> refined_;  // class, product's text, layouts
};

}  // namespace millrace
