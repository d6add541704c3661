// Merges groups greedily: keeps the current groups, the candidate pairs, and what merging a pair would save.
// Tests: tests/fusion/fuse_test.cpp.
#pragma once

#include <queue>
#include <string>
#include <vector>

#include "base/or_rejected.h"
#include "fusion/fused_graph.h"
#include "fusion/group.h"
#include "fusion/group_order.h"

namespace millrace {

class Fuser {
 public:
  explicit Fuser(const Neighbourhood& near);

  // Merges until no merge saves words or a launch.
  void run();

  // Restores the groups of a fused graph.
  void restore(const FusedGraph& fused);

  // Group numbers in execution order.
  std::vector<size_t> order() const;
  const Group& group(size_t number) const { return groups_[number]; }
  size_t group_of(OperatorId op) const { return group_of_[op.at()]; }

  // What merging two groups would give.
  struct Merge {
    Group group;
    int64_t saved = 0;  // words
  };
  OrRejected<Merge> try_merge(size_t a, size_t b) const;

  bool makes_cycle(size_t a, size_t b) { return order_.merging_makes_cycle(a, b); }

  // Operators that `id` could fuse with: producers and readers of its tensors, and cousins.
  std::vector<OperatorId> neighbours(OperatorId id) const;

 private:
  // A pair of groups, with their versions when it was evaluated.
  struct Candidate {
    int64_t saved = 0;
    std::string name;  // breaks ties independently of the order of operators
    size_t a = 0;
    size_t b = 0;
    int version_a = 0;
    int version_b = 0;
    bool operator<(const Candidate& other) const {
      return saved != other.saved ? saved < other.saved : name > other.name;
    }
  };

  OrRejected<Merge> try_united(const Group& a, const Group& b) const;
  void find_cousins();
  void consider(size_t a, size_t b);
  void consider_neighbours(size_t group);
  void merge(size_t a, size_t b, Group merged);
  std::string name_of(size_t group) const;
  int64_t words_of_group(const Group& group) const;

  const Neighbourhood& near_;
  std::vector<Group> groups_;
  std::vector<int> versions_;  // one per group; negative: merged into another
  std::vector<size_t> group_of_;
  std::vector<std::vector<OperatorId>> cousins_;
  std::priority_queue<Candidate> candidates_;
  GroupOrder order_;
};

}  // namespace millrace
