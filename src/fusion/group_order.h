// Maintains an execution order of groups while groups merge. A merge visits only the groups between the two.
// Tests: tests/fusion/fuse_test.cpp.
#pragma once

#include <functional>
#include <vector>

namespace millrace {

class GroupOrder {
 public:
  // Calls `visit` with each group that reads an output of `group`.
  using Successors = std::function<void(size_t group, const std::function<void(size_t)>& visit)>;

  // Groups 0 to count-1, which must be in a valid order.
  GroupOrder(size_t count, Successors successors);

  // Whether another group is on a path from one of the two to the other: merged, they would depend on themselves.
  bool merging_makes_cycle(size_t a, size_t b);

  // Merges `b` into `a`. `successors` must still answer for the old groups; merging must not make a cycle.
  void merge(size_t a, size_t b);

  // Sets the order of the remaining groups.
  void assign(const std::vector<size_t>& groups);

  size_t position(size_t group) const { return position_[group]; }

 private:
  // Marks the groups before `last` that depend on `first`. Returns true, and stops, as soon as one of them leads to
  // `last`.
  bool mark_between(size_t first, size_t last);
  bool is_marked(size_t group) const { return marks_[group] == mark_; }

  Successors successors_;
  std::vector<size_t> position_;  // one per group
  std::vector<size_t> at_;        // one per position: the group, or kGone
  std::vector<size_t> marks_;     // one per group: the last search that found it
  size_t mark_ = 0;               // the number of the last search
};

}  // namespace millrace
