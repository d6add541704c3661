#include "fusion/group.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace millrace {
namespace {

// Matches b's labels with a's, one to one.
class Matching {
 public:
  Matching(const Graph& graph, const Group& a, const Group& b)
      : graph_(graph), a_(a), b_(b), to_a_(b.dims.size(), kNoLabel), taken_(a.dims.size(), false) {}

  bool match(int label_b, int label_a) {
    if (label_b == kNoLabel || label_a == kNoLabel) return label_b == label_a;
    int& known = to_a_[as_index(label_b)];
    if (known == label_a) return true;
    const size_t target = as_index(label_a);
    const bool fits = graph_.extent(b_.dims[as_index(label_b)]) == graph_.extent(a_.dims[target]);
    if (known != kNoLabel || taken_[target] || !fits) return false;
    known = label_a;
    taken_[target] = true;
    return true;
  }

  const std::vector<int>& to_a() const { return to_a_; }

 private:
  const Graph& graph_;
  const Group& a_;
  const Group& b_;
  std::vector<int> to_a_;
  std::vector<bool> taken_;
};

using Accesses = std::map<TensorId, std::vector<std::vector<int>>>;  // the labels of each access of a tensor

Accesses accesses_of(const Neighbourhood& near, const Group& group) {
  Accesses found;
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (words_of(near.graph, access.tensor) > 0) found[access.tensor].push_back(labels_of(member, access));
      }
    }
  }
  return found;
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
      leaves(graph.tensors.size(), false) {
  for (const Output& result : graph.results) leaves[result.tensor.at()] = true;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) leaves[gradient.at()] = true;
  }
}

Group single(const Neighbourhood& near, OperatorId id) {
  Group group;
  Member member{id, {}};
  for (const DimId dim : near.op(id).space) {
    const bool trivial = near.graph.extent(dim) == 1;
    member.labels.push_back(trivial ? kNoLabel : static_cast<int>(group.dims.size()));
    if (!trivial) group.dims.push_back(dim);
  }
  group.members.push_back(std::move(member));
  return group;
}

bool is_member(const Group& group, OperatorId op) {
  return std::any_of(group.members.begin(), group.members.end(), [&](const Member& m) { return m.op == op; });
}

std::vector<int> labels_of(const Member& member, const Access& access) {
  std::vector<int> labels;
  for (const int index : access.axes) labels.push_back(index == kFixed ? kNoLabel : member.labels[as_index(index)]);
  return labels;
}

OrRejected<Group> unite(const Neighbourhood& near, const Group& a, const Group& b) {
  Matching matching(near.graph, a, b);
  const Accesses accesses_a = accesses_of(near, a);
  const Accesses accesses_b = accesses_of(near, b);
  bool shared = false;
  for (const auto& [tensor, rights] : accesses_b) {
    const auto lefts = accesses_a.find(tensor);
    if (lefts == accesses_a.end()) continue;
    shared = true;
    for (const std::vector<int>& left : lefts->second) {
      for (const std::vector<int>& right : rights) {
        for (size_t axis = 0; axis < left.size(); ++axis) {
          if (matching.match(right[axis], left[axis])) continue;
          return Rejection{concat("they access ", near.graph.tensor(tensor).name, " along different indices")};
        }
      }
    }
  }
  if (!shared) {
    const std::vector<int>& left = first_by_kind(near, a).labels;
    const std::vector<int>& right = first_by_kind(near, b).labels;
    bool same = left.size() == right.size();
    for (size_t index = 0; same && index < left.size(); ++index) same = matching.match(right[index], left[index]);
    if (!same) return Rejection{"their iteration spaces have different sizes"};
  }
  Group united = a;
  std::vector<int> renamed = matching.to_a();
  for (size_t label = 0; label < renamed.size(); ++label) {
    if (renamed[label] != kNoLabel) continue;
    renamed[label] = static_cast<int>(united.dims.size());
    united.dims.push_back(b.dims[label]);
  }
  if (united.dims.size() > kMaxLabels) return Rejection{"fused, they would have too many dimensions"};
  for (Member member : b.members) {
    for (int& label : member.labels) {
      if (label != kNoLabel) label = renamed[as_index(label)];
    }
    united.members.push_back(std::move(member));
  }
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
    for (const Member& member : group.members) {
      for (const Access& input : near.op(member.op).inputs) {
        if (input.tensor != tensor) continue;
        for (const int label : labels_of(member, input))
          along_row = along_row || (label != kNoLabel && ((nest.outer >> label) & 1) == 0);
      }
    }
    words += stored_words(near, tensor, masks) * (movement.rereads && along_row ? nest.loops : 1);
  }
  return words;
}

}  // namespace millrace
