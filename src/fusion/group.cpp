#include "fusion/group.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/text.h"

namespace millrace {
namespace {

// Where a label of b is on a label of a: b's position is a's less the shift.
struct Match {
  int label = kNoLabel;
  int64_t shift = 0;

  bool operator==(const Match&) const = default;
};

// Matches b's labels with a's, one to one. Of two labels, one contains the other.
class Matching {
 public:
  Matching(const Graph& graph, const Group& a, const Group& b)
      : graph_(graph), a_(a), b_(b), to_a_(b.dims.size()), taken_(a.dims.size(), false) {}

  bool match(int label_b, const Match& match) {
    if (label_b == kNoLabel || match.label == kNoLabel) return label_b == match.label;
    Match& known = to_a_[as_index(label_b)];
    if (known == match) return true;
    const size_t target = as_index(match.label);
    const int64_t extent_a = graph_.extent(a_.dims[target]);
    const int64_t extent_b = graph_.extent(b_.dims[as_index(label_b)]);
    const bool in_a = match.shift >= 0 && match.shift + extent_b <= extent_a;
    const bool in_b = match.shift <= 0 && extent_a - match.shift <= extent_b;
    if (known.label != kNoLabel || taken_[target] || !(in_a || in_b)) return false;
    known = match;
    taken_[target] = true;
    return true;
  }

  // Two positions on one axis. The terms are paired by stride, and the outermost may be shifted.
  bool match(const Position& b, const Position& a) {
    std::vector<IndexTerm> terms_b = by_stride(b);
    std::vector<IndexTerm> terms_a = by_stride(a);
    if (terms_a.size() != terms_b.size()) {  // an index of extent one may have no label
      drop_units(a_, terms_a, units_a_);
      drop_units(b_, terms_b, units_b_);
    }
    if (terms_a.size() != terms_b.size()) return false;
    if (terms_a.empty()) return a.offset == b.offset;
    const int64_t stride = terms_a[0].stride;
    const int64_t apart = b.offset - a.offset;
    if (apart % stride != 0) return false;
    for (size_t k = 0; k < terms_a.size(); ++k) {
      if (terms_a[k].stride != terms_b[k].stride) return false;
      const bool inner = k > 0;
      if (inner && extent_of(a_, terms_a[k].index) != extent_of(b_, terms_b[k].index)) return false;
      if (!match(terms_b[k].index, {terms_a[k].index, inner ? 0 : apart / stride})) return false;
    }
    return true;
  }

  // The same, but only if nothing is known of the labels yet, and without a shift.
  void match_if_free(const Position& b, const Position& a) {
    if (a.terms.size() != 1 || b.terms.size() != 1 || a.offset != b.offset || a.terms[0].stride != b.terms[0].stride)
      return;
    if (extent_of(a_, a.index()) == extent_of(b_, b.index())) match(b.index(), {a.index(), 0});
  }

  const std::vector<Match>& to_a() const { return to_a_; }

  // Whether a label of extent one that the other group reads without an index would become a point of a longer one:
  // then what is computed there would be read elsewhere.
  bool loses_a_unit() const {
    for (size_t label = 0; label < to_a_.size(); ++label) {
      const Match& match = to_a_[label];
      if (match.label == kNoLabel) continue;
      const bool longer_a = extent_of(a_, match.label) > 1;
      const bool longer_b = extent_of(b_, static_cast<int>(label)) > 1;
      if ((longer_a && units_b_.contains(static_cast<int>(label))) || (longer_b && units_a_.contains(match.label)))
        return true;
    }
    return false;
  }

 private:
  void drop_units(const Group& group, std::vector<IndexTerm>& terms, std::set<int>& units) {
    std::erase_if(terms, [&](const IndexTerm& term) {
      const bool unit = extent_of(group, term.index) == 1;
      if (unit) units.insert(term.index);
      return unit;
    });
  }

  static std::vector<IndexTerm> by_stride(const Position& position) {
    std::vector<IndexTerm> terms = position.terms;
    std::sort(terms.begin(), terms.end(),
              [](const IndexTerm& l, const IndexTerm& r) { return std::abs(l.stride) > std::abs(r.stride); });
    return terms;
  }

  int64_t extent_of(const Group& group, int label) const { return graph_.extent(group.dims[as_index(label)]); }

  const Graph& graph_;
  const Group& a_;
  const Group& b_;
  std::vector<Match> to_a_;
  std::vector<bool> taken_;
  std::set<int> units_a_;  // labels of extent one that the other group's access lacks
  std::set<int> units_b_;
};

struct LabelledAccess {
  std::vector<Position> axes;
  bool plain = true;
};

using Accesses = std::map<TensorId, std::vector<LabelledAccess>>;

Accesses accesses_of(const Neighbourhood& near, const Group& group) {
  Accesses found;
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (words_of(near.graph, access.tensor) > 0)
          found[access.tensor].push_back({positions_of(member, access), is_plain(near.graph, op, access)});
      }
    }
  }
  return found;
}

// Indices of extent one of the operators whose outputs a join places, and of those that compute them.
std::set<std::pair<OperatorId, size_t>> joined_indices(const Graph& graph, const std::vector<OperatorId>& producers) {
  std::set<std::pair<OperatorId, size_t>> joined;
  std::vector<std::pair<TensorId, size_t>> open;  // axes of extent one
  const auto add = [&](const Access& access, size_t axis) {
    if (graph.extent(graph.tensor(access.tensor).dims[axis]) == 1) open.emplace_back(access.tensor, axis);
  };
  const auto runs_far = [&](const Operator& op, const Position& position) {
    return std::any_of(position.terms.begin(), position.terms.end(),
                       [&](const IndexTerm& term) { return graph.extent(op.space[as_index(term.index)]) > 1; });
  };
  for (const Operator& op : graph.operators) {
    if (op.kind != OperatorKind::join) continue;
    for (const Access& input : op.inputs) {
      for (size_t axis = 0; axis < input.axes.size(); ++axis) {
        if (runs_far(op, input.axes[axis])) add(input, axis);
      }
    }
  }
  while (!open.empty()) {
    const auto [tensor, axis] = open.back();
    open.pop_back();
    const OperatorId producer = producers[tensor.at()];
    if (!producer.valid()) continue;
    const Operator& op = graph.operators[producer.at()];
    for (const Access& output : op.outputs) {
      if (output.tensor != tensor || output.axes[axis].terms.size() != 1) continue;
      const int index = output.axes[axis].index();
      if (!joined.emplace(producer, as_index(index)).second) continue;
      for (const Access& input : op.inputs) {
        for (size_t k = 0; k < input.axes.size(); ++k) {
          if (input.axes[k].stride_along(index) != 0) add(input, k);
        }
      }
    }
  }
  return joined;
}

// A member whose choice does not depend on the order of the operators.
const Member& first_by_kind(const Neighbourhood& near, const Group& group) {
  return *std::min_element(group.members.begin(), group.members.end(), [&](const Member& l, const Member& r) {
    const Operator& left = near.op(l.op);
    const Operator& right = near.op(r.op);
    return left.kind != right.kind ? left.kind < right.kind : left.name < right.name;
  });
}

}  // namespace

Neighbourhood::Neighbourhood(const TrainingGraph& training)
    : graph(training.graph),
      producers(producers_of(graph)),
      readers(readers_of(graph)),
      leaves(graph.tensors.size(), false),
      plain(std::all_of(graph.operators.begin(), graph.operators.end(),
                        [&](const Operator& op) { return has_plain_accesses(graph, op); })),
      joined(joined_indices(graph, producers)) {
  for (const Output& result : graph.results) leaves[result.tensor.at()] = true;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) leaves[gradient.at()] = true;
  }
}

Group single(const Neighbourhood& near, OperatorId id) {
  Group group;
  const std::vector<DimId>& space = near.op(id).space;
  Member member{id, {}, std::vector<int64_t>(space.size(), 0)};
  for (size_t index = 0; index < space.size(); ++index) {
    const bool trivial = near.graph.extent(space[index]) == 1 && !near.joined.contains({id, index});
    member.labels.push_back(trivial ? kNoLabel : static_cast<int>(group.dims.size()));
    if (!trivial) group.dims.push_back(space[index]);
  }
  group.members.push_back(std::move(member));
  return group;
}

bool is_member(const Group& group, OperatorId op) {
  return std::any_of(group.members.begin(), group.members.end(), [&](const Member& m) { return m.op == op; });
}

std::vector<Position> positions_of(const Member& member, const Access& access) {
  std::vector<Position> indices;
  for (size_t index = 0; index < member.labels.size(); ++index) {
    const int label = member.labels[index];
    indices.push_back(label == kNoLabel ? Position() : Position({{label, 1}}, -member.shifts[index]));
  }
  std::vector<Position> positions;
  for (const Position& axis : access.axes) positions.push_back(substituted(axis, indices));
  return positions;
}

namespace {

// Whether a tensor's accesses in two groups must agree: one writes it, or both read all of it.
bool must_agree(const Neighbourhood& near, TensorId tensor, const Group& a, const Group& b, const LabelledAccess& left,
                const LabelledAccess& right) {
  const OperatorId producer = near.producers[tensor.at()];
  const bool passed = producer.valid() && (is_member(a, producer) || is_member(b, producer));
  return passed || (left.plain && right.plain);
}

// Matches the labels of shared tensors; a reason if they contradict each other.
std::optional<Rejection> match_shared(const Neighbourhood& near, const Group& a, const Group& b, Matching& matching) {
  const Accesses accesses_a = accesses_of(near, a);
  const Accesses accesses_b = accesses_of(near, b);
  bool shared = false;
  for (const bool binding : {true, false}) {
    for (const auto& [tensor, rights] : accesses_b) {
      const auto lefts = accesses_a.find(tensor);
      if (lefts == accesses_a.end()) continue;
      shared = true;
      for (const LabelledAccess& left : lefts->second) {
        for (const LabelledAccess& right : rights) {
          if (must_agree(near, tensor, a, b, left, right) != binding) continue;
          for (size_t axis = 0; axis < left.axes.size(); ++axis) {
            if (!binding)
              matching.match_if_free(right.axes[axis], left.axes[axis]);
            else if (!matching.match(right.axes[axis], left.axes[axis]))
              return Rejection{concat("they access ", near.graph.tensor(tensor).name, " along different indices")};
          }
        }
      }
    }
  }
  if (shared) return std::nullopt;
  const std::vector<int>& left = first_by_kind(near, a).labels;
  const std::vector<int>& right = first_by_kind(near, b).labels;
  bool same = left.size() == right.size();
  for (size_t index = 0; same && index < left.size(); ++index) {
    const bool labelled = left[index] != kNoLabel && right[index] != kNoLabel;
    same = (!labelled ||
            near.graph.extent(a.dims[as_index(left[index])]) == near.graph.extent(b.dims[as_index(right[index])])) &&
           matching.match(right[index], {left[index], 0});
  }
  return same ? std::nullopt : std::optional(Rejection{"their iteration spaces have different sizes"});
}

// Whether every member runs along a label.
bool all_run_along(const Group& group, size_t label) {
  return std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
    return std::find(member.labels.begin(), member.labels.end(), static_cast<int>(label)) != member.labels.end();
  });
}

// A member that runs along a part of an index computes nothing elsewhere: only an elementwise operator can.
bool runs_in_part(const Neighbourhood& near, const Group& group, const Member& member) {
  const Operator& op = near.op(member.op);
  for (size_t index = 0; index < member.labels.size(); ++index) {
    const int label = member.labels[index];
    if (label == kNoLabel) continue;
    if (near.graph.extent(op.space[index]) != near.graph.extent(group.dims[as_index(label)])) return true;
  }
  return false;
}

// A gather reads any position of its table, which must be in memory; a sum into selected positions is a kernel alone.
std::optional<Rejection> reject_gathers(const Neighbourhood& near, const Group& group) {
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    if (op.kind == OperatorKind::gather) {
      const OperatorId producer = near.producers[op.inputs[0].tensor.at()];
      if (producer.valid() && is_member(group, producer))
        return Rejection{concat(op.name, " reads any position of ", near.graph.tensor(op.inputs[0].tensor).name)};
    }
    if (op.kind != OperatorKind::scatter_add) continue;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (op.reduced[index] && near.graph.extent(op.space[index]) > 1)
        return Rejection{concat(op.name, " sums into positions that depend on data")};
    }
  }
  return std::nullopt;
}

}  // namespace

OrRejected<Group> unite(const Neighbourhood& near, const Group& a, const Group& b) {
  Matching matching(near.graph, a, b);
  if (const std::optional<Rejection> rejection = match_shared(near, a, b, matching)) return *rejection;
  constexpr const char* kLost = "one of them is at one point of an index, and not all of its operators have that index";
  if (matching.loses_a_unit()) return Rejection{kLost};
  for (size_t label = 0; label < b.dims.size(); ++label) {
    const Match& match = matching.to_a()[label];
    if (match.label == kNoLabel) continue;
    const size_t label_a = as_index(match.label);
    const int64_t extent_a = near.graph.extent(a.dims[label_a]);
    const int64_t extent_b = near.graph.extent(b.dims[label]);
    // A member without the index of extent one would run everywhere and read what others compute at one point only.
    const bool lost = (extent_a == 1 && extent_b > 1 && !all_run_along(a, label_a)) ||
                      (extent_b == 1 && extent_a > 1 && !all_run_along(b, label));
    if (lost) return Rejection{kLost};
  }
  Group united = a;
  std::vector<Match> renamed = matching.to_a();
  for (size_t label = 0; label < renamed.size(); ++label) {
    Match& match = renamed[label];
    if (match.label == kNoLabel) {
      match.label = static_cast<int>(united.dims.size());
      united.dims.push_back(b.dims[label]);
      continue;
    }
    DimId& dim = united.dims[as_index(match.label)];
    if (near.graph.extent(dim) >= near.graph.extent(b.dims[label])) continue;
    // b's label contains a's: positions are b's.
    dim = b.dims[label];
    for (Member& member : united.members) {
      for (size_t index = 0; index < member.labels.size(); ++index) {
        if (member.labels[index] == match.label) member.shifts[index] -= match.shift;
      }
    }
    match.shift = 0;
  }
  if (united.dims.size() > kMaxLabels) return Rejection{"fused, they would have too many dimensions"};
  for (Member member : b.members) {
    for (size_t index = 0; index < member.labels.size(); ++index) {
      int& label = member.labels[index];
      if (label == kNoLabel) continue;
      member.shifts[index] += renamed[as_index(label)].shift;
      label = renamed[as_index(label)].label;
    }
    united.members.push_back(std::move(member));
  }
  for (const Member& member : united.members) {
    const OperatorKind kind = near.op(member.op).kind;
    const bool elementwise = info_of(kind).operator_class == OperatorClass::elementwise;
    if ((!elementwise || kind == OperatorKind::dropout) && runs_in_part(near, united, member))
      return Rejection{concat(near.op(member.op).name, " would run along a part of an index")};
  }
  if (const std::optional<Rejection> rejection = reject_gathers(near, united)) return *rejection;
  std::sort(united.members.begin(), united.members.end(), [](const Member& l, const Member& r) { return l.op < r.op; });
  return united;
}

int64_t stored_words(const Neighbourhood& near, TensorId tensor, MaskStorage masks) {
  const int64_t words = words_of(near.graph, tensor);
  const OperatorId producer = near.producers[tensor.at()];
  if (masks == MaskStorage::words || !producer.valid()) return words;
  const Operator& op = near.op(producer);
  const bool dropped = op.kind == OperatorKind::dropout && op.outputs[1].tensor == tensor;
  if (!dropped && !is_computed_boolean(near.graph, tensor)) return words;
  if (dropped && masks == MaskStorage::regenerated) return 0;
  const int64_t bits_per_word = dropped ? 8 * bytes_of(near.graph.tensor(tensor).dtype) : kBooleansPerWord;
  return (words + bits_per_word - 1) / bits_per_word;
}

Movement movement_of(const Neighbourhood& near, const Group& group, const LoopNest& nest) {
  // The words of a row that fit into a block's registers and shared memory between two loops: 64 KiB of float32.
  constexpr int64_t kRowWords = 16384;
  // Blocks that write partial sums for the second stage of a reduction across the grid: about one per multiprocessor,
  // and at most one per row.
  constexpr int64_t kGridBlocks = 128;
  int64_t blocks = 1;
  for (size_t label = 0; label < group.dims.size() && blocks < kGridBlocks; ++label) {
    if ((nest.outer >> label) & 1) blocks *= near.graph.extent(group.dims[label]);
  }
  blocks = std::min(blocks, kGridBlocks);
  Movement movement;
  movement.rereads = nest.loops > 1 && nest.row_points > kRowWords;
  for (size_t k = 0; k < group.members.size(); ++k) {
    const Operator& op = near.op(group.members[k].op);
    for (const Access& input : op.inputs) {
      const OperatorId producer = near.producers[input.tensor.at()];
      if (words_of(near.graph, input.tensor) > 0 && !(producer.valid() && is_member(group, producer)))
        movement.reads.push_back(input.tensor);
    }
    for (const Access& output : op.outputs) {
      const std::vector<OperatorId>& readers = near.readers[output.tensor.at()];
      const bool needed =
          near.leaves[output.tensor.at()] ||
          std::any_of(readers.begin(), readers.end(), [&](OperatorId r) { return !is_member(group, r); });
      (needed ? movement.writes : movement.interim).push_back(output.tensor);
      if (nest.across_grid[k] && group.members.size() > 1)
        movement.partial_words += 2 * blocks * words_of(near.graph, output.tensor);
    }
  }
  std::sort(movement.reads.begin(), movement.reads.end());
  movement.reads.erase(std::unique(movement.reads.begin(), movement.reads.end()), movement.reads.end());
  movement.words = words_with_masks(near, group, nest, movement, MaskStorage::words);
  return movement;
}

int64_t words_with_masks(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement,
                         MaskStorage masks) {
  int64_t words = movement.partial_words;
  for (const TensorId tensor : movement.writes) words += stored_words(near, tensor, masks);
  for (const TensorId tensor : movement.reads) {
    bool along_row = false;
    std::vector<TensorUse> uses;
    for (const Member& member : group.members) {
      const Operator& op = near.op(member.op);
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        const Access& input = op.inputs[k];
        if (input.tensor != tensor) continue;
        uses.push_back({&op, k});
        for (const Position& position : positions_of(member, input)) {
          for (const IndexTerm& term : position.terms) along_row = along_row || ((nest.outer >> term.index) & 1) == 0;
        }
      }
    }
    // Of a tensor that is stored as words, only those that are touched; others are read whole.
    const int64_t all = words_of(near.graph, tensor);
    const int64_t stored = stored_words(near, tensor, masks);
    const int64_t read = stored == all ? words_touched(near.graph, uses) : stored;
    words += read * (movement.rereads && along_row ? nest.loops : 1);
  }
  return words;
}

}  // namespace millrace
