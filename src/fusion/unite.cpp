#include "fusion/unite.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/text.h"

namespace millrace {
namespace {

bool has(LabelSet labels, size_t label) { return ((labels >> label) & 1) != 0; }

LabelSet renamed(LabelSet labels, const std::vector<Match>& names) {
  LabelSet found = 0;
  for (size_t label = 0; label < names.size(); ++label) {
    if (has(labels, label)) found |= LabelSet{1} << names[label].label;
  }
  return found;
}

std::vector<LabelSet> renamed(std::vector<LabelSet> sets, const std::vector<Match>& names) {
  for (LabelSet& labels : sets) labels = renamed(labels, names);
  std::sort(sets.begin(), sets.end());
  return sets;
}

GroupSpaces renamed(GroupSpaces spaces, const std::vector<Match>& names) {
  spaces.distinct = renamed(std::move(spaces.distinct), names);
  for (Reduction& reduction : spaces.reductions) {
    for (LabelSet* labels : {&reduction.all, &reduction.reduced, &reduction.mapped}) *labels = renamed(*labels, names);
  }
  for (auto& [from, to] : spaces.flows) {
    from = renamed(from, names);
    to = renamed(to, names);
  }
  std::sort(spaces.flows.begin(), spaces.flows.end());
  spaces.first.second = renamed(spaces.first.second, names);
  spaces.last.second = renamed(spaces.last.second, names);
  return spaces;
}

Position renamed(Position position, const std::vector<Match>& names) {
  for (IndexTerm& term : position.terms) term.index = names[as_index(term.index)].label;
  std::sort(position.terms.begin(), position.terms.end());
  return position;
}

TensorSummary renamed(TensorSummary tensor, const std::vector<Match>& names) {
  for (LabelledAccess& access : tensor.accesses) {
    for (Position& position : access.axes) position = renamed(std::move(position), names);
  }
  tensor.read_over = renamed(std::move(tensor.read_over), names);
  tensor.written_over = renamed(tensor.written_over, names);
  return tensor;
}

void rename(Member& member, const std::vector<Match>& names) {
  for (size_t index = 0; index < member.labels.size(); ++index) {
    int& label = member.labels[index];
    if (label == kNoLabel) continue;
    member.shifts[index] += names[as_index(label)].shift;
    label = names[as_index(label)].label;
  }
}

bool are_same(const std::vector<Match>& names) {
  for (size_t label = 0; label < names.size(); ++label) {
    if (names[label] != Match{static_cast<int>(label), 0}) return false;
  }
  return true;
}

GroupSummary renamed(GroupSummary summary, const std::vector<Match>& names) {
  if (are_same(names)) return summary;
  for (auto& [tensor, own] : summary.tensors) own = renamed(std::move(own), names);
  summary.spaces = renamed(std::move(summary.spaces), names);
  summary.whole = renamed(summary.whole, names);
  rename(summary.first_by_kind, names);
  return summary;
}

std::vector<SharedTensor> shared_by(const GroupSummary& a, const GroupSummary& b) {
  const bool few_a = a.tensors.size() < b.tensors.size();
  const GroupSummary& few = few_a ? a : b;
  const GroupSummary& many = few_a ? b : a;
  std::vector<SharedTensor> shared;
  for (const auto& [tensor, own] : few.tensors) {
    const auto found = many.tensors.find(tensor);
    if (found == many.tensors.end()) continue;
    const TensorSummary* other = &found->second;
    shared.push_back({tensor, few_a ? &own : other, few_a ? other : &own});
  }
  return shared;
}

class Uniter {
 public:
  Uniter(const Neighbourhood& near, const FusionGroup& a, const FusionGroup& b)
      : near_(near),
        graph_(near.graph),
        a_(a),
        b_(b),
        shared_(shared_by(a.summary, b.summary)),
        matching_(near.graph, a.group.dims, b.group.dims) {}

  OrRejected<Union> run() {
    if (shared_.empty() && a_.summary.kinds != b_.summary.kinds)
      return Rejection{"they share no tensor and have different operators"};
    for (const auto step : {&Uniter::match_shared, &Uniter::check_units, &Uniter::join_labels, &Uniter::check_parts,
                            &Uniter::check_gathers, &Uniter::count_once, &Uniter::count_words}) {
      if (std::optional<Rejection> rejection = (this->*step)()) return std::move(*rejection);
    }
    return std::move(union_);
  }

 private:
  using Reason = std::optional<Rejection>;

  int64_t extent(const FusionGroup& group, size_t label) const { return graph_.extent(group.group.dims[label]); }

  // Whether a tensor's accesses in two groups must agree: one writes it, or both read all of it.
  static bool must_agree(const SharedTensor& shared, const LabelledAccess& left, const LabelledAccess& right) {
    return shared.a->written || shared.b->written || (left.plain && right.plain);
  }

  // Matches the labels of shared tensors; a reason if they contradict each other.
  Reason match_shared() {
    for (const SharedTensor& shared : shared_) {
      if (!match_binding(shared))
        return Rejection{concat("they access ", graph_.tensor(shared.tensor).name, " along different indices")};
    }
    for (const SharedTensor& shared : shared_) match_free(shared);
    return shared_.empty() ? match_in_order() : std::nullopt;
  }

  bool match_binding(const SharedTensor& shared) {
    for (const LabelledAccess& left : shared.a->accesses) {
      for (const LabelledAccess& right : shared.b->accesses) {
        if (!must_agree(shared, left, right)) continue;
        for (size_t axis = 0; axis < left.axes.size(); ++axis) {
          if (!matching_.match(right.axes[axis], left.axes[axis])) return false;
        }
      }
    }
    return true;
  }

  void match_free(const SharedTensor& shared) {
    for (const LabelledAccess& left : shared.a->accesses) {
      for (const LabelledAccess& right : shared.b->accesses) {
        if (must_agree(shared, left, right)) continue;
        for (size_t axis = 0; axis < left.axes.size(); ++axis)
          matching_.match_if_free(right.axes[axis], left.axes[axis]);
      }
    }
  }

  Reason match_in_order() {
    const std::vector<int>& left = a_.summary.first_by_kind.labels;
    const std::vector<int>& right = b_.summary.first_by_kind.labels;
    bool same = left.size() == right.size();
    for (size_t index = 0; same && index < left.size(); ++index) {
      const bool labelled = left[index] != kNoLabel && right[index] != kNoLabel;
      same = (!labelled || extent(a_, as_index(left[index])) == extent(b_, as_index(right[index]))) &&
             matching_.match(right[index], {left[index], 0});
    }
    return same ? std::nullopt : Reason(Rejection{"their iteration spaces have different sizes"});
  }

  static bool all_run_along(const FusionGroup& group, size_t label) {
    const std::vector<LabelSet>& spaces = group.summary.spaces.distinct;
    return std::all_of(spaces.begin(), spaces.end(), [&](LabelSet space) { return has(space, label); });
  }

  // A member without an index of extent one would run everywhere and read what others compute at one point only.
  Reason check_units() {
    bool lost = matching_.loses_a_unit();
    for (size_t label = 0; label < b_.group.dims.size() && !lost; ++label) {
      const Match& match = matching_.to_a()[label];
      if (match.label == kNoLabel) continue;
      const int64_t extent_a = extent(a_, as_index(match.label));
      const int64_t extent_b = extent(b_, label);
      lost = (extent_a == 1 && extent_b > 1 && !all_run_along(a_, as_index(match.label))) ||
             (extent_b == 1 && extent_a > 1 && !all_run_along(b_, label));
    }
    if (!lost) return std::nullopt;
    return Rejection{"one of them is at one point of an index, and not all of its operators have that index"};
  }

  Reason join_labels() {
    union_.dims = a_.group.dims;
    union_.of_b = matching_.to_a();
    union_.moved_a.resize(a_.group.dims.size(), 0);
    for (size_t label = 0; label < union_.of_b.size(); ++label) {
      Match& match = union_.of_b[label];
      if (match.label == kNoLabel) {
        match.label = static_cast<int>(union_.dims.size());
        union_.dims.push_back(b_.group.dims[label]);
        continue;
      }
      const size_t label_a = as_index(match.label);
      if (extent(a_, label_a) < extent(b_, label)) grown_a_ |= LabelSet{1} << label_a;
      if (extent(b_, label) < extent(a_, label_a)) grown_b_ |= LabelSet{1} << label;
      if (extent(a_, label_a) >= extent(b_, label)) continue;
      // b's label contains a's, so positions are those of b.
      union_.dims[label_a] = b_.group.dims[label];
      union_.moved_a[label_a] = -match.shift;
      match.shift = 0;
    }
    if (union_.dims.size() > kMaxLabels) return Rejection{"fused, they would have too many dimensions"};
    return std::nullopt;
  }

  Reason check_parts() {
    for (const auto& [group, grown] : {std::pair{&a_, grown_a_}, std::pair{&b_, grown_b_}}) {
      if ((group->summary.whole & grown) == 0) continue;
      for (const Member& member : group->group.members) {
        if (runs_in_part(member, grown))
          return Rejection{concat(near_.op(member.op).name, " would run along a part of an index")};
      }
    }
    return std::nullopt;
  }

  bool runs_in_part(const Member& member, LabelSet grown) const {
    const bool along = std::any_of(member.labels.begin(), member.labels.end(),
                                   [&](int label) { return label != kNoLabel && has(grown, as_index(label)); });
    return along && runs_along_whole_indices(near_.op(member.op).kind);
  }

  // A gather may read any position of its table, so the table must be in memory. A scatter_add is a kernel by itself.
  Reason check_gathers() {
    for (const auto side : {&SharedTensor::a, &SharedTensor::b}) {
      const GroupSummary& summary = (side == &SharedTensor::a ? a_ : b_).summary;
      if (summary.scatter.valid())
        return Rejection{concat(near_.op(summary.scatter).name, " sums into positions that depend on data")};
      for (const SharedTensor& shared : shared_) {
        const OperatorId gather = (shared.*side)->gather;
        if (gather.valid() && (shared.a->written || shared.b->written))
          return Rejection{concat(near_.op(gather).name, " reads any position of ", graph_.tensor(shared.tensor).name)};
      }
    }
    return std::nullopt;
  }

  Reason count_once() {
    union_.once = {a_.summary.once.tensors + b_.summary.once.tensors, a_.summary.once.words + b_.summary.once.words};
    for (const SharedTensor& shared : shared_) {
      const MovedOnce own_a = moved_once(near_, shared.tensor, *shared.a);
      const MovedOnce own_b = moved_once(near_, shared.tensor, *shared.b);
      const MovedOnce both = moved_together(near_, shared);
      union_.once.tensors += both.tensors - own_a.tensors - own_b.tensors;
      union_.once.words += both.words - own_a.words - own_b.words;
    }
    return union_.once.tensors <= kMostTensorsInMemory
               ? std::nullopt
               : Reason(Rejection{
                     concat("fused, they would access more than ", kMostTensorsInMemory, " tensors in memory")});
  }

  Reason count_words() {
    std::vector<TensorSummary> in_b;  // under the common labels
    std::vector<SharedTensor> shared = shared_;
    const bool same = are_same(union_.of_b);
    in_b.reserve(shared.size());
    for (SharedTensor& one : shared) {
      if (same) break;
      in_b.push_back(renamed(*one.b, union_.of_b));
      one.b = &in_b.back();
    }
    const GroupSpaces spaces =
        united(near_, a_.summary.spaces, same ? b_.summary.spaces : renamed(b_.summary.spaces, union_.of_b), shared);
    const OrRejected<LoopNest> nest = find_loop_nest(graph_, union_.dims, spaces);
    if (!nest) return Rejection{nest.reason()};
    union_.words = union_.once.words + partial_words(near_, union_.dims, spaces, *nest);
    if (may_reread(*nest)) union_.words += reread_words(near_, merged(near_, a_, b_, union_), *nest);
    return std::nullopt;
  }

  const Neighbourhood& near_;
  const Graph& graph_;
  const FusionGroup& a_;
  const FusionGroup& b_;
  std::vector<SharedTensor> shared_;
  LabelMatching matching_;
  Union union_;
  LabelSet grown_a_ = 0;  // labels of a that become longer
  LabelSet grown_b_ = 0;
};

}  // namespace

OrRejected<Union> unite(const Neighbourhood& near, const FusionGroup& a, const FusionGroup& b) {
  return Uniter(near, a, b).run();
}

FusionGroup merged(const Neighbourhood& near, FusionGroup a, FusionGroup b, const Union& both) {
  const auto shifts = [](const Match& match) { return match.shift != 0; };
  const bool shifted = std::any_of(both.of_b.begin(), both.of_b.end(), shifts) ||
                       std::any_of(both.moved_a.begin(), both.moved_a.end(), [](int64_t by) { return by != 0; });
  Group group;
  group.dims = both.dims;
  std::vector<Match> of_a;
  for (size_t label = 0; label < both.moved_a.size(); ++label)
    of_a.push_back({static_cast<int>(label), both.moved_a[label]});
  if (shifted) {
    for (Member& member : a.group.members) rename(member, of_a);
  }
  for (Member& member : b.group.members) rename(member, both.of_b);
  std::merge(std::move_iterator(a.group.members.begin()), std::move_iterator(a.group.members.end()),
             std::move_iterator(b.group.members.begin()), std::move_iterator(b.group.members.end()),
             std::back_inserter(group.members), [](const Member& l, const Member& r) { return l.op < r.op; });
  if (shifted) return summarized(near, std::move(group));  // positions on all axes change
  absorb(near, a.summary, renamed(std::move(b.summary), both.of_b));
  a.summary.once = both.once;
  a.summary.words = both.words;
  return {std::move(group), std::move(a.summary)};
}

}  // namespace millrace
