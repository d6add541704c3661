// An order in which groups can run, kept while groups merge. Merging two looks only at what stands between them.
#pragma once

#include <functional>
#include <vector>

namespace millrace {

class GroupOrder {
 public:
  // `successors` calls its argument with each group that reads what a group writes.
  using Successors = std::function<void(size_t group, const std::function<void(size_t)>& visit)>;

  // Groups 0 to count-1, in an order that can run.
  GroupOrder(size_t count, Successors successors);

  // Whether another group stands on a way from one of the two to the other: as one, they would wait for themselves.
  bool merging_makes_cycle(size_t a, size_t b);

  // `b` becomes part of `a`, which `successors` must not know of yet; merging must make no cycle.
  void merge(size_t a, size_t b);

  // Takes over an order of the groups that are left.
  void assign(const std::vector<size_t>& groups);

  size_t position(size_t group) const { return position_[group]; }

 private:
  // The groups behind `first` that it leads to, among those before `last`; stops when one leads to `last` too.
  std::vector<size_t> between(size_t first, size_t last, bool& reaches);

  Successors successors_;
  std::vector<size_t> position_;  // one a group
  std::vector<size_t> at_;        // one a position: the group, or kGone
};

}  // namespace millrace
