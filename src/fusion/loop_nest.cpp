#include "fusion/loop_nest.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

LabelSet longer_than_one(const Graph& graph, const std::vector<DimId>& dims) {
  LabelSet labels = 0;
  for (size_t label = 0; label < dims.size(); ++label) {
    if (graph.extent(dims[label]) > 1) labels |= LabelSet{1} << label;
  }
  return labels;
}

// A reduction along labels longer than one.
struct Space {
  LabelSet all = 0;
  LabelSet reduced = 0;
  bool maps_after = false;  // a normalization: it uses its reduction at each point of the row
};

Space space_of(const Reduction& reduction, LabelSet longer) {
  return {reduction.all & longer, reduction.reduced & longer,
          reduction.always_maps || (reduction.mapped & longer) != 0};
}

class NestFinder {
 public:
  NestFinder(const Graph& graph, const std::vector<DimId>& dims, const GroupSpaces& spaces)
      : graph_(graph), dims_(dims), spaces_(spaces), longer_(longer_than_one(graph, dims)) {}

  OrRejected<LoopNest> run() const {
    LabelSet everything = 0;
    LabelSet common = ~LabelSet{0};
    for (const LabelSet space : spaces_.distinct) {
      everything |= space & longer_;
      common &= space & longer_;
    }
    common &= everything;
    std::set<LabelSet> inners;
    for (const LabelSet space : spaces_.distinct) {
      if ((space & longer_) != common) inners.insert(space & longer_ & ~common);
    }
    if (inners.empty()) return equal_spaces(everything);
    if (common == 0) return Rejection{"their iteration spaces share no dimension"};
    LabelSet seen = 0;
    for (const LabelSet inner : inners) {
      if ((seen & inner) != 0)
        return Rejection{concat("their iteration spaces differ: ", shown(spaces_.first.second & longer_), " and ",
                                shown(spaces_.last.second & longer_))};
      seen |= inner;
    }
    if (inners.size() > 1 && !connected_by_flow())
      return Rejection{"their inner dimensions differ, and neither writes an input of the other"};
    return nest_with(common, everything);
  }

 private:
  std::string shown(LabelSet labels) const {
    std::vector<std::string> names;
    for (size_t label = 0; label < dims_.size(); ++label) {
      if ((labels >> label) & 1) names.push_back(graph_.dims[dims_[label].at()].name);
    }
    return names.empty() ? "nothing" : join(names, "·");
  }

  double points_in(LabelSet labels) const {
    double points = 1;
    for (size_t label = 0; label < dims_.size(); ++label) {
      if ((labels >> label) & 1) points *= static_cast<double>(graph_.extent(dims_[label]));
    }
    return points;
  }

  // All members run over the same space. Reductions decide which indices form the row: a reduction whose result a
  // member uses must end inside the row; another may also span exactly the other indices, or all.
  OrRejected<LoopNest> equal_spaces(LabelSet everything) const {
    std::set<LabelSet> inside;
    std::set<LabelSet> free;
    for (const Reduction& reduction : spaces_.reductions) {
      const Space space = space_of(reduction, longer_);
      if (space.reduced == 0) continue;
      if (space.maps_after || reduction.used_inside) {
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
    for (const Reduction& reduction : spaces_.reductions) {
      const Space space = space_of(reduction, longer_);
      const LabelSet inner = space.all & ~outer;
      nest.reduces_rows = nest.reduces_rows || (space.reduced != 0 && space.reduced == inner);
      if (space.reduced == 0 || space.reduced == inner) continue;
      nest.across_grid.push_back(reduction.op);
      if (space.reduced != (outer & space.all) && space.reduced != space.all) {
        return Rejection{
            concat("a reduction over ", shown(space.reduced), " does not fit a row of ", shown(everything & ~outer))};
      }
      if (space.maps_after || reduction.used_inside)
        return Rejection{concat("a reduction over ", shown(space.reduced),
                                " crosses the grid, but another operator of the group uses it")};
    }
    double longest = 1;
    for (const LabelSet space : spaces_.distinct) longest = std::max(longest, points_in(space & longer_ & ~outer));
    nest.row_points = static_cast<int64_t>(std::min(longest, 9e18));
    return nest;
  }

  // Whether tensors passed between members connect all the different spaces.
  bool connected_by_flow() const {
    std::map<LabelSet, LabelSet> parent;
    for (const LabelSet space : spaces_.distinct) parent[space & longer_] = space & longer_;
    const auto root = [&](LabelSet space) {
      while (parent[space] != space) space = parent[space];
      return space;
    };
    for (const auto& [from, to] : spaces_.flows) parent[root(to & longer_)] = root(from & longer_);
    const LabelSet any = root(parent.begin()->first);
    return std::all_of(parent.begin(), parent.end(), [&](const auto& entry) { return root(entry.first) == any; });
  }

  const Graph& graph_;
  const std::vector<DimId>& dims_;
  const GroupSpaces& spaces_;
  LabelSet longer_;
};

}  // namespace

OrRejected<LoopNest> find_loop_nest(const Graph& graph, const std::vector<DimId>& dims, const GroupSpaces& spaces) {
  return NestFinder(graph, dims, spaces).run();
}

int count_loops(const Graph& graph, const std::vector<DimId>& dims, const GroupSpaces& spaces, const LoopNest& nest,
                const std::vector<OperatorId>& members) {
  if (!nest.reduces_rows) return 1;
  const LabelSet longer = longer_than_one(graph, dims);
  std::map<TensorId, int> ready;
  int loops = 1;
  auto reduction = spaces.reductions.begin();
  for (const OperatorId member : members) {
    const Operator& op = graph.operators[member.at()];
    int begin = 0;
    for (const Access& input : op.inputs) {
      const auto found = ready.find(input.tensor);
      if (found != ready.end()) begin = std::max(begin, found->second);
    }
    const bool reduces = reduction != spaces.reductions.end() && reduction->op == member;
    const Space space = reduces ? space_of(*reduction++, longer) : Space();
    const bool reduces_row = space.reduced != 0 && space.reduced == (space.all & ~nest.outer);
    const int end = begin + (reduces_row ? 1 : 0);
    for (const Access& output : op.outputs) ready[output.tensor] = end;
    loops = std::max(loops, begin + (reduces_row && space.maps_after ? 2 : 1));
  }
  return loops;
}

}  // namespace millrace
