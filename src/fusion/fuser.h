// Merges groups greedily: keeps the current groups, the candidate pairs, and what merging a pair would save.
// Tests: tests/fusion/fuse_test.cpp.
#pragma once

#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "base/or_rejected.h"
#include "fusion/fused_graph.h"
#include "fusion/group_order.h"
#include "fusion/unite.h"

namespace millrace {

class Fuser {
 public:
  explicit Fuser(const Neighbourhood& near);

  // Merges until no merge saves words or a launch. Indices of extent one keep their labels for joins along them until
  // nothing more merges; then they are dropped, since they affect no loop, and merging continues.
  void run();

  // Restores the groups of a fused graph.
  void restore(const FusedGraph& fused);

  // The numbers of the groups, in execution order.
  std::vector<size_t> order() const;
  const FusionGroup& group(size_t number) const { return groups_[number]; }
  size_t group_of(OperatorId op) const { return group_of_[op.at()]; }

  // The result of merging two groups, `first` before `second`.
  struct Merge {
    size_t first = 0;
    size_t second = 0;
    Union both;
    int64_t saved = 0;  // words
  };
  OrRejected<Merge> try_merge(size_t a, size_t b) const;

  bool makes_cycle(size_t a, size_t b) { return order_.merging_makes_cycle(a, b); }

  // Operators that `id` could fuse with: producers and readers of its tensors, and cousins. If more operators access a
  // tensor than in any real layer, only those that are near in the graph's order.
  std::vector<OperatorId> neighbours(OperatorId id) const;

  // How many pairs of groups were tried: proportional to the operators.
  size_t tries() const { return tries_; }

 private:
  // A pair of groups, with their versions when it was evaluated.
  struct Candidate {
    int64_t saved = 0;
    std::pair<size_t, size_t> names;  // breaks ties independently of the order of operators
    size_t a = 0;
    size_t b = 0;
    int version_a = 0;
    int version_b = 0;
    bool operator<(const Candidate& other) const {
      return saved != other.saved ? saved < other.saved : names > other.names;
    }
  };

  OrRejected<Merge> try_united(size_t a, size_t b) const;
  void rank_names();
  void find_cousins();
  void find_near_groups();
  void find_edges();
  void consider(size_t a, size_t b);
  void consider(const std::vector<size_t>& groups);
  std::vector<size_t> drop_unit_labels();  // returns the groups that had one
  void merge_candidates();
  void merge(size_t a, size_t b, const Merge& found);

  const Neighbourhood& near_;
  std::vector<FusionGroup> groups_;
  std::vector<int> versions_;  // one per group; negative: merged into another
  std::vector<size_t> group_of_;
  std::vector<std::vector<OperatorId>> cousins_;
  std::vector<size_t> name_rank_;               // one per operator
  std::vector<std::set<size_t>> near_groups_;   // one per group: those that it could merge with
  std::vector<std::set<size_t>> successors_;    // one per group: those of the same pass that read its outputs
  std::vector<std::set<size_t>> predecessors_;  // the reverse
  mutable size_t tries_ = 0;
  std::priority_queue<Candidate> candidates_;
  GroupOrder order_;
};

}  // namespace millrace
