#include "fusion/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/unique_names.h"
#include "fusion/fuse.h"
#include "fusion/movement.h"

namespace millrace {
namespace {

// Maps and normalizations. Not a dropout: kernels can regenerate its mask without it.
bool is_repeatable(const Operator& op) {
  return op.kind != OperatorKind::dropout && op.kind != OperatorKind::contraction;
}

// Whether the first output has an element for each point: a map, or a normalization that maps. The output of a plain
// reduction is so small that saving it costs less than a loop over the row.
bool maps(const Operator& op) {
  for (size_t index = 0; index < op.space.size(); ++index) {
    if (!runs_along(op.outputs[0], index)) return false;
  }
  return true;
}

size_t forward_operators(const Graph& graph) {
  const auto begin = std::find_if(graph.operators.begin(), graph.operators.end(),
                                  [](const Operator& op) { return op.pass == Pass::backward; });
  return static_cast<size_t>(begin - graph.operators.begin());
}

// Limit for one tensor: more arithmetic would cost more than moving its words.
constexpr size_t kMostRepeated = 32;

using GroupNumber = size_t;                                   // in the graph fused without recomputation
using Copies = std::set<std::pair<OperatorId, GroupNumber>>;  // (forward operator, kernel that recomputes it)

struct Choice {
  std::map<TensorId, std::set<GroupNumber>> kernels_of;  // for each tensor no longer saved, the kernels that need it
  Copies copies;
  std::map<GroupNumber, int64_t> more_words;  // that a backward kernel then moves
};

// The cost of recomputing a tensor in one backward kernel.
struct Recomputation {
  std::set<OperatorId> operators;
  std::set<TensorId> reads;  // new inputs of the kernel
  std::set<TensorId> saves;  // tensors that forward must save for it
};

class Chooser {
 public:
  Chooser(const TrainingGraph& training, const FusedGraph& fused)
      : near_(training), group_of_(group_numbers(fused)), in_memory_(near_.graph.tensors.size()) {
    for (size_t k = 0; k < in_memory_.size(); ++k) in_memory_[k] = !near_.producers[k].valid();
    for (const FusedOperator& group : fused.groups) {
      for (const TensorId tensor : group.writes) in_memory_[tensor.at()] = true;
      reads_.emplace_back(group.reads.begin(), group.reads.end());
    }
  }

  // In forward order, so that the inputs of a copy are decided before it.
  Choice choose(const std::set<TensorId>& except) {
    for (size_t k = 0; k < forward_operators(near_.graph); ++k) {
      const Operator& op = near_.graph.operators[k];
      const TensorId tensor = op.outputs[0].tensor;
      if (is_repeatable(op) && maps(op) && !except.contains(tensor)) consider(tensor);
    }
    return std::move(choice_);
  }

 private:
  // The backward kernels that read a tensor; none if it must be in memory anyway.
  std::set<GroupNumber> kernels_that_need(TensorId tensor) const {
    if (near_.leaves[tensor.at()] || !in_memory_[tensor.at()]) return {};
    const GroupNumber home = group_of_[near_.producers[tensor.at()].at()];
    std::set<GroupNumber> kernels;
    for (const OperatorId reader : near_.readers[tensor.at()]) {
      const GroupNumber group = group_of_[reader.at()];
      if (group == home) continue;
      // An extremum's gradient tests which elements equal the extremum: both must be rounded, or neither.
      const bool exact = near_.op(reader).kind == OperatorKind::extremum_dx;
      if (near_.op(reader).pass == Pass::forward || near_.is_contraction(reader) || exact) return {};
      kernels.insert(group);
    }
    return kernels;
  }

  // Collects the operators and inputs to recompute `tensor`. False if it would have to save a tensor as large as
  // `instead_of`, or takes too many operators.
  bool find(TensorId tensor, TensorId instead_of, GroupNumber kernel, Recomputation& recomputation) const {
    const OperatorId producer = near_.producers[tensor.at()];
    const int64_t words = stored(tensor);
    if (tensor != instead_of) {
      if (words == 0 || reads_[kernel].contains(tensor)) return true;
      if (in_memory_[tensor.at()]) {
        recomputation.reads.insert(tensor);
        return true;
      }
      if (!is_repeatable(near_.op(producer))) {
        recomputation.reads.insert(tensor);
        recomputation.saves.insert(tensor);
        return words < stored(instead_of);
      }
    }
    if (choice_.copies.contains({producer, kernel}) || !recomputation.operators.insert(producer).second) return true;
    if (recomputation.operators.size() > kMostRepeated) return false;
    const std::vector<Access>& inputs = near_.op(producer).inputs;
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](const Access& input) { return find(input.tensor, instead_of, kernel, recomputation); });
  }

  int64_t stored(TensorId tensor) const { return stored_words(near_, tensor, MaskStorage::bits); }

  int64_t words(const std::set<TensorId>& tensors) const {
    int64_t sum = 0;
    for (const TensorId tensor : tensors) sum += stored(tensor);
    return sum;
  }

  void consider(TensorId tensor) {
    const std::set<GroupNumber> kernels = kernels_that_need(tensor);
    if (kernels.empty()) return;
    const int64_t once = stored(tensor);
    int64_t saved = once;
    std::set<TensorId> saves;
    std::map<GroupNumber, Recomputation> found;
    for (const GroupNumber kernel : kernels) {
      Recomputation& recomputation = found[kernel];
      if (!find(tensor, tensor, kernel, recomputation)) return;
      saved += once - words(recomputation.reads);
      saves.insert(recomputation.saves.begin(), recomputation.saves.end());
    }
    if (saved <= words(saves)) return;
    choice_.kernels_of[tensor] = kernels;
    in_memory_[tensor.at()] = false;
    for (const TensorId also : saves) in_memory_[also.at()] = true;
    for (const auto& [kernel, recomputation] : found) {
      for (const OperatorId op : recomputation.operators) choice_.copies.emplace(op, kernel);
      reads_[kernel].erase(tensor);
      reads_[kernel].insert(recomputation.reads.begin(), recomputation.reads.end());
      choice_.more_words[kernel] += words(recomputation.reads) - once;
    }
  }

  Neighbourhood near_;
  std::vector<GroupNumber> group_of_;      // one per operator
  std::vector<bool> in_memory_;            // one per tensor, given the choices so far
  std::vector<std::set<TensorId>> reads_;  // one per group, given the choices so far
  Choice choice_;
};

// Makes the training graph with the copies at the beginning of backward.
class Repeater {
 public:
  Repeater(const TrainingGraph& training, const FusedGraph& fused, const Choice& choice)
      : made_(training),
        fused_(fused),
        choice_(choice),
        forward_(forward_operators(training.graph)),
        tensors_(training.graph.tensors.size()) {}

  TrainingGraph make() {
    UniqueNames operator_names;
    UniqueNames tensor_names;
    for (const Operator& op : made_.graph.operators) operator_names.claim(op.name);
    for (const Tensor& tensor : made_.graph.tensors) tensor_names.claim(tensor.name);
    std::vector<Operator> copies;
    for (const auto& [id, kernel] : choice_.copies) {
      Operator op = made_.graph.operators[id.at()];
      op.name = operator_names.take(op.name + " again", " ");
      op.pass = Pass::backward;
      redirect(op, kernel);
      for (Access& output : op.outputs) {
        Tensor tensor = made_.graph.tensor(output.tensor);
        tensor.name = tensor_names.take(tensor.name + ".again", "");
        const TensorId copy(made_.graph.tensors.size());
        made_.graph.tensors.push_back(std::move(tensor));
        copy_of_[{output.tensor, kernel}] = copy;
        output.tensor = copy;
      }
      copies.push_back(std::move(op));
    }
    for (GroupNumber kernel = 0; kernel < fused_.groups.size(); ++kernel) {
      if (fused_.groups[kernel].pass == Pass::forward) continue;
      for (const OperatorId member : fused_.groups[kernel].members)
        redirect(made_.graph.operators[member.at()], kernel);
    }
    keep(copies);
    for (size_t k = 0; k < copies.size(); ++k) made_.repeated.emplace_back(forward_ + k);
    made_.graph.operators.insert(made_.graph.operators.begin() + static_cast<std::ptrdiff_t>(forward_), copies.begin(),
                                 copies.end());
    return std::move(made_);
  }

 private:
  void redirect(Operator& op, GroupNumber kernel) const {
    for (Access& input : op.inputs) {
      const auto found = copy_of_.find({input.tensor, kernel});
      if (found != copy_of_.end()) input.tensor = found->second;
    }
  }

  // Updates `kept`: marks tensors as recomputed, and keeps the inputs of the copies.
  void keep(const std::vector<Operator>& copies) {
    std::map<TensorId, Kept> kept;
    for (size_t k = 0; k < copies.size(); ++k) {
      for (const Access& input : copies[k].inputs) {
        const TensorRole role = made_.graph.tensor(input.tensor).role;
        const bool copied = input.tensor.at() >= tensors_;
        if (copied || role == TensorRole::scalar || role == TensorRole::constant) continue;
        Kept& entry = kept[input.tensor];
        entry.tensor = input.tensor;
        entry.keeping = role == TensorRole::argument ? Keeping::given : Keeping::saved;
        const OperatorId reader(forward_ + k);
        if (entry.readers.empty() || entry.readers.back() != reader) entry.readers.push_back(reader);
      }
    }
    for (const Kept& before : made_.kept) {
      const auto [found, fresh] = kept.try_emplace(before.tensor);
      Kept& entry = found->second;
      entry.tensor = before.tensor;
      if (fresh) entry.keeping = choice_.kernels_of.contains(before.tensor) ? Keeping::recomputed : before.keeping;
      for (const OperatorId reader : before.readers) entry.readers.emplace_back(reader.at() + copies.size());
    }
    made_.kept.clear();
    for (auto& [tensor, entry] : kept) made_.kept.push_back(std::move(entry));
  }

  TrainingGraph made_;
  const FusedGraph& fused_;
  const Choice& choice_;
  size_t forward_;  // number of forward operators
  size_t tensors_;  // number of tensors without copies
  std::map<std::pair<TensorId, GroupNumber>, TensorId> copy_of_;
};

// The tensors whose kernels did not fuse as expected: each must contain its copies and move no more words than
// expected.
std::set<TensorId> not_as_expected(const FusedGraph& before, const Choice& choice, const TrainingGraph& training,
                                   const FusedGraph& fused) {
  std::map<GroupNumber, std::vector<OperatorId>> members;
  size_t copy = 0;
  for (const auto& [op, kernel] : choice.copies) members[kernel].push_back(training.repeated[copy++]);
  const std::vector<GroupNumber> group_of = group_numbers(fused);
  std::set<TensorId> wrong;
  for (const auto& [tensor, kernels] : choice.kernels_of) {
    for (const GroupNumber kernel : kernels) {
      std::vector<OperatorId> all = members[kernel];
      for (const OperatorId member : before.groups[kernel].members)
        all.emplace_back(member.at() + choice.copies.size());
      const GroupNumber number = group_of[all.front().at()];
      const FusedOperator& group = fused.groups[number];
      const bool together =
          std::all_of(all.begin(), all.end(), [&](OperatorId op) { return group_of[op.at()] == number; });
      // A kernel with further members moves more words than expected, but fewer than without fusing them.
      const bool grown = group.members.size() > all.size();
      const int64_t most = moved_words(before.groups[kernel]) + choice.more_words.at(kernel);
      if (!together || (!grown && moved_words(group) > most)) wrong.insert(tensor);
    }
  }
  return wrong;
}

// The inputs of a GELU that are a product plus a bias, if a library can do all three. A product that adds the bias
// writes them instead of its own result, so that recomputing them saves nothing; a product that also applies the GELU
// writes them as its auxiliary output.
std::set<TensorId> auxiliaries_of(const Graph& graph, const FusedGraph& fused) {
  std::set<TensorId> found;
  for (const Epilogue& epilogue : fused.epilogues) {
    const Operator& last = graph.operators[epilogue.absorbed.back().at()];
    const TensorId input = last.inputs[0].tensor;
    if (last.kind == OperatorKind::gelu_tanh && is_half(graph.tensor(input).dtype)) found.insert(input);
  }
  return found;
}

}  // namespace

Recomputed recompute(const TrainingGraph& training) { return recompute(training, fuse(training), false); }

Recomputed recompute(const TrainingGraph& training, FusedGraph fused, bool epilogues) {
  constexpr int kRounds = 4;  // each fuses again; one attempt suffices if kernels fuse as expected
  std::set<TensorId> except;
  if (epilogues) except = auxiliaries_of(training.graph, fused);
  for (int round = 0; round < kRounds; ++round) {
    const Choice choice = Chooser(training, fused).choose(except);
    if (choice.copies.empty()) break;
    Recomputed made;
    made.training = Repeater(training, fused, choice).make();
    made.fused = fuse(made.training);
    const std::set<TensorId> wrong = not_as_expected(fused, choice, made.training, made.fused);
    if (wrong.empty() && moved_words(made.fused) < moved_words(fused)) return made;
    if (wrong.empty()) break;
    except.insert(wrong.begin(), wrong.end());
  }
  return {training, std::move(fused)};
}

}  // namespace millrace
