// The partitions found so far, and what ties them into choice points. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "candidates/candidates.h"
#include "candidates/choice_points.h"
#include "candidates/partition_builder.h"

namespace millrace {

// Why a product that absorbs operators is rejected.
inline constexpr const char* kCycle = "another operator would depend on it, and it on that operator";
inline constexpr const char* kResultNeeded = "the product's result is needed by itself too";
inline constexpr const char* kRestIsNoKernel = "the rest of the kernel around it cannot be a kernel";
inline constexpr const char* kSavesNothing = "the kernel around it moves as many words without it";

class PartitionSet {
 public:
  // `callers_contiguous_groups`: the caller's tensors that are adjacent in memory. The builder must outlive it.
  PartitionSet(const PartitionBuilder& builder, std::vector<std::vector<TensorId>> callers_contiguous_groups);

  // Adds a partition under a unique name, which it returns.
  std::string add(Partition partition);
  void reject(std::string reason) { found_.rejected.push_back({std::move(reason), 1}); }
  void reject_stack(const std::vector<OperatorId>& contractions, const std::string& reason);
  void reject_absorbing(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed,
                        const std::string& reason);

  // Puts the operators of both into one choice point.
  void tie(const Partition& one, const Partition& other);
  // Partitions, by name, of which either all run or none.
  void bundle(std::vector<std::string> names) { rules_.bundles.push_back(std::move(names)); }
  size_t choice_point_of(OperatorId op) const;

  // Makes stacked tensors adjacent in memory if possible; else they are packed.
  void place_stacks(Product& product);

  const std::vector<PartitionCandidates>& partitions() const { return found_.partitions; }
  const std::vector<std::vector<TensorId>>& contiguous_groups() const { return found_.contiguous_groups; }
  std::vector<ChoicePoint> choice_points() const;

  // Operators that epilogues can absorb. Of the members of one kernel, they absorb either all of these or none.
  std::vector<OperatorId>& absorbable() { return rules_.absorbable; }
  const std::vector<OperatorId>& absorbable() const { return rules_.absorbable; }

  // Sorts the partitions so that every combination of alternatives can run, and finds the choice points. Partitions
  // that would be in a cycle with another one are rejected.
  Candidates finish();

 private:
  bool make_adjacent(const std::vector<TensorId>& tensors);
  void sort_partitions();
  size_t drop_last(const std::set<size_t>& left);

  const PartitionBuilder& builder_;
  std::vector<size_t> parent_;  // per operator: union-find of choice points
  UniqueNames names_;
  ChoicePointRules rules_;
  Candidates found_;
};

}  // namespace millrace
