// Decides whether operators can share a loop nest: the paper's compatibility of iteration spaces, and partial fusion.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "fusion/group.h"

namespace millrace {
namespace {

struct Space {
  LabelSet all = 0;
  LabelSet reduced = 0;
  bool maps_after = false;   // a normalization: it uses its reduction at each point of the row
  bool used_inside = false;  // another member reads its output
};

class NestFinder {
 public:
  NestFinder(const Neighbourhood& near, const Group& group) : near_(near), group_(group) {
    for (const Member& member : group.members) spaces_.push_back(space_of(member));
  }

  OrRejected<LoopNest> run() const {
    LabelSet everything = 0;
    LabelSet common = ~LabelSet{0};
    for (const Space& space : spaces_) {
      everything |= space.all;
      common &= space.all;
    }
    common &= everything;
    std::set<LabelSet> inners;
    for (const Space& space : spaces_) {
      if (space.all != common) inners.insert(space.all & ~common);
    }
    if (inners.empty()) return equal_spaces(everything);
    if (common == 0) return Rejection{"their iteration spaces share no dimension"};
    LabelSet seen = 0;
    for (const LabelSet inner : inners) {
      if ((seen & inner) != 0)
        return Rejection{
            concat("their iteration spaces differ: ", shown(spaces_.front().all), " and ", shown(spaces_.back().all))};
      seen |= inner;
    }
    if (inners.size() > 1 && !connected_by_flow())
      return Rejection{"their inner dimensions differ, and neither writes an input of the other"};
    return nest_with(common, everything);
  }

 private:
  std::string shown(LabelSet labels) const {
    std::vector<std::string> names;
    for (size_t label = 0; label < group_.dims.size(); ++label) {
      if ((labels >> label) & 1) names.push_back(near_.graph.dims[group_.dims[label].at()].name);
    }
    return names.empty() ? "nothing" : join(names, "·");
  }

  double points_in(LabelSet labels) const {
    double points = 1;
    for (size_t label = 0; label < group_.dims.size(); ++label) {
      if ((labels >> label) & 1) points *= static_cast<double>(near_.graph.extent(group_.dims[label]));
    }
    return points;
  }

  int64_t extent(int label) const { return near_.graph.extent(group_.dims[as_index(label)]); }

  Space space_of(const Member& member) const {
    const Operator& op = near_.op(member.op);
    Space space;
    space.maps_after = op.kind == OperatorKind::log_sum_exp;  // it subtracts the maximum before it sums
    for (size_t index = 0; index < member.labels.size(); ++index) {
      if (member.labels[index] == kNoLabel || extent(member.labels[index]) == 1) continue;
      const LabelSet bit = LabelSet{1} << member.labels[index];
      space.all |= bit;
      if (op.reduced[index]) space.reduced |= bit;
    }
    for (const Access& output : op.outputs) {
      for (const Position& position : positions_of(member, output)) {
        for (const IndexTerm& term : position.terms)
          space.maps_after = space.maps_after || ((space.reduced >> term.index) & 1) != 0;
      }
      for (const OperatorId reader : near_.readers[output.tensor.at()]) {
        space.used_inside = space.used_inside || is_member(group_, reader);
      }
    }
    return space;
  }

  // All members run over the same space. Reductions decide which indices form the row: a reduction whose result a
  // member uses must end inside the row; another may also span exactly the other indices, or all.
  OrRejected<LoopNest> equal_spaces(LabelSet everything) const {
    std::set<LabelSet> inside;
    std::set<LabelSet> free;
    for (const Space& space : spaces_) {
      if (space.reduced == 0) continue;
      if (space.maps_after || space.used_inside) {
        inside.insert(space.reduced);
      } else if (space.reduced != everything) {
        free.insert(space.reduced);
      }
    }
    if (inside.size() > 1)
      return Rejection{
          concat("they reduce over different dimensions: ", shown(*inside.begin()), " and ", shown(*inside.rbegin()))};
    LabelSet row = inside.empty() ? 0 : *inside.begin();
    if (inside.empty() && !free.empty()) {
      // Any of them could be the row; the shortest stays in fast memory.
      row = *std::min_element(free.begin(), free.end(), [&](LabelSet l, LabelSet r) {
        return points_in(l) != points_in(r) ? points_in(l) < points_in(r) : shown(l) < shown(r);
      });
    }
    return nest_with(everything & ~row, everything);
  }

  OrRejected<LoopNest> nest_with(LabelSet outer, LabelSet everything) const {
    LoopNest nest;
    nest.outer = outer;
    double longest = 1;
    for (const Space& space : spaces_) {
      const LabelSet inner = space.all & ~outer;
      longest = std::max(longest, points_in(inner));
      const bool in_row = space.reduced == 0 || space.reduced == inner;
      nest.across_grid.push_back(!in_row);
      if (in_row) continue;
      if (space.reduced != (outer & space.all) && space.reduced != space.all) {
        return Rejection{
            concat("a reduction over ", shown(space.reduced), " does not fit a row of ", shown(everything & ~outer))};
      }
      if (space.maps_after || space.used_inside)
        return Rejection{concat("a reduction over ", shown(space.reduced),
                                " crosses the grid, but another operator of the group uses it")};
    }
    nest.row_points = static_cast<int64_t>(std::min(longest, 9e18));
    nest.loops = count_loops(outer);
    return nest;
  }

  // Counts the loops over a row: a user of a reduction runs in the next loop, and a normalization takes two loops.
  int count_loops(LabelSet outer) const {
    std::map<TensorId, int> ready;
    int loops = 1;
    for (size_t k = 0; k < spaces_.size(); ++k) {
      const Operator& op = near_.op(group_.members[k].op);
      int begin = 0;
      for (const Access& input : op.inputs) {
        const auto found = ready.find(input.tensor);
        if (found != ready.end()) begin = std::max(begin, found->second);
      }
      const bool reduces_row = spaces_[k].reduced != 0 && spaces_[k].reduced == (spaces_[k].all & ~outer);
      const int end = begin + (reduces_row ? 1 : 0);
      for (const Access& output : op.outputs) ready[output.tensor] = end;
      loops = std::max(loops, begin + (reduces_row && spaces_[k].maps_after ? 2 : 1));
    }
    return loops;
  }

  // Whether tensors passed between members connect all the different spaces.
  bool connected_by_flow() const {
    std::vector<size_t> parent(group_.members.size());
    for (size_t k = 0; k < parent.size(); ++k) parent[k] = k;
    const auto root = [&](size_t k) {
      while (parent[k] != k) k = parent[k];
      return k;
    };
    std::map<LabelSet, size_t> first_over;  // members over one space are connected
    for (size_t k = 0; k < parent.size(); ++k) parent[k] = first_over.try_emplace(spaces_[k].all, k).first->second;
    std::map<TensorId, size_t> made_by;
    for (size_t k = 0; k < parent.size(); ++k) {
      const Operator& op = near_.op(group_.members[k].op);
      for (const Access& input : op.inputs) {
        const auto found = made_by.find(input.tensor);
        if (found != made_by.end()) parent[root(k)] = root(found->second);
      }
      for (const Access& output : op.outputs) made_by[output.tensor] = k;
    }
    return std::all_of(parent.begin(), parent.end(), [&](size_t k) { return root(k) == root(0); });
  }

  const Neighbourhood& near_;
  const Group& group_;

  std::vector<Space> spaces_;
};

}  // namespace

OrRejected<LoopNest> find_loop_nest(const Neighbourhood& near, const Group& group) {
  return NestFinder(near, group).run();
}

}  // namespace millrace
