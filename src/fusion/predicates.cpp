#include "fusion/predicates.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/unique_names.h"
#include "fusion/fuse.h"
#include "fusion/movement.h"

namespace millrace {
namespace {

// A "less" comparison in backward of two tensors that exist before backward begins.
struct Predicate {
  std::vector<DimId> space;
  std::vector<Access> inputs;
  std::vector<OperatorId> uses;  // the operators that compute it, or that use their first input only for it
};

TensorId zero_of(Graph& graph) {
  UniqueNames names;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::constant && graph.tensors[k].value == 0) return TensorId(k);
    names.claim(graph.tensors[k].name);
  }
  graph.tensors.push_back({names.take("0", "."), DType::float64, {}, TensorRole::constant, 0});
  return TensorId(graph.tensors.size() - 1);
}

// The comparisons of backward, without duplicates. May add the constant 0 to the graph, because a ReLU's gradient
// compares the ReLU's output with it.
std::vector<Predicate> find_predicates(Graph& graph) {
  std::vector<bool> later(graph.tensors.size(), false);  // computed in backward, or given to it
  for (size_t k = 0; k < graph.tensors.size(); ++k) later[k] = graph.tensors[k].role == TensorRole::result_gradient;
  for (const Operator& op : graph.operators) {
    for (const Access& output : op.outputs) later[output.tensor.at()] = op.pass == Pass::backward;
  }
  const auto earlier = [&](const Access& input) { return !later[input.tensor.at()]; };
  std::vector<Predicate> found;
  std::map<TensorId, std::vector<size_t>> comparing;  // by the last tensor that they compare
  TensorId zero;
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const Operator& op = graph.operators[k];
    if (op.pass == Pass::forward) continue;
    std::vector<Access> inputs;
    if (op.kind == OperatorKind::less && std::all_of(op.inputs.begin(), op.inputs.end(), earlier)) inputs = op.inputs;
    if (op.kind == OperatorKind::relu_dx && earlier(op.inputs[0])) {
      if (!zero.valid()) zero = zero_of(graph);
      inputs = {{zero, {}}, op.inputs[0]};
    }
    // Forward will compare them, and may not read everything that backward reads.
    const bool readable = std::none_of(inputs.begin(), inputs.end(),
                                       [&](const Access& input) { return takes_partial_diagonal(graph, op, input); });
    if (inputs.empty() || !readable) continue;
    std::vector<size_t>& near = comparing[inputs.back().tensor];
    const auto known = std::find_if(near.begin(), near.end(), [&](size_t number) {
      return found[number].space == op.space && found[number].inputs == inputs;
    });
    if (known != near.end()) {
      found[*known].uses.emplace_back(k);
    } else {
      near.push_back(found.size());
      found.push_back({op.space, std::move(inputs), {OperatorId(k)}});
    }
  }
  return found;
}

using GroupNumber = size_t;  // in the graph fused without saved predicates

// A saved predicate: the operators that use it, and the tensors that their kernels then no longer read.
struct Saved {
  size_t predicate = 0;
  std::vector<OperatorId> uses;
  std::vector<std::pair<GroupNumber, TensorId>> unread;
};

class PredicateChooser {
 public:
  PredicateChooser(const TrainingGraph& training, const FusedGraph& fused, const std::vector<Predicate>& predicates,
                   bool epilogues)
      : near_(training), fused_(fused), predicates_(predicates), group_of_(group_numbers(fused)) {
    if (epilogues) absorbed_ = absorbed_groups();
    for (size_t number = 0; number < fused.groups.size(); ++number) {
      const FusedOperator& group = fused.groups[number];
      const bool host = group.kind == FusedKind::kernel && group.pass == Pass::forward && !absorbed_.contains(number);
      if (host) hosts_.insert(number);
    }
  }

  std::vector<Saved> choose(const std::set<size_t>& except) {
    std::vector<Saved> chosen;
    const auto take = [&](const std::vector<size_t>& together) {
      for (Saved& saved : consider(together)) {
        comparing_.insert(saved.uses.begin(), saved.uses.end());
        taken_.insert(saved.predicate);
        chosen.push_back(std::move(saved));
      }
    };
    for (const std::vector<size_t>& together : of_the_same_tensors(except)) {
      take(together);
      for (const size_t number : together) {
        if (together.size() > 1 && !taken_.contains(number)) take({number});
      }
    }
    return chosen;
  }

 private:
  // The groups that a product absorbs as its epilogue.
  std::set<GroupNumber> absorbed_groups() const {
    std::set<GroupNumber> groups;
    for (const Epilogue& epilogue : fused_.epilogues) {
      const std::set<OperatorId> absorbed(epilogue.absorbed.begin(), epilogue.absorbed.end());
      for (const OperatorId op : absorbed) {
        const std::vector<OperatorId>& members = fused_.groups[group_of_[op.at()]].members;
        if (std::all_of(members.begin(), members.end(), [&](OperatorId member) { return absorbed.contains(member); }))
          groups.insert(group_of_[op.at()]);
      }
    }
    return groups;
  }

  // The forward kernels that read or write a tensor, without those that a product absorbs.
  std::set<GroupNumber> hosts_of(TensorId tensor) const {
    std::set<GroupNumber> hosts;
    const auto add = [&](OperatorId op) {
      if (op.valid() && hosts_.contains(group_of_[op.at()])) hosts.insert(group_of_[op.at()]);
    };
    add(near_.producers[tensor.at()]);
    for (const OperatorId reader : near_.readers[tensor.at()]) add(reader);
    return hosts;
  }

  // Whether a forward kernel has all compared tensors.
  bool has_host(const Predicate& predicate) const {
    std::optional<std::set<GroupNumber>> hosts;
    for (const Access& input : predicate.inputs) {
      if (words_of(near_.graph, input.tensor) == 0) continue;
      const std::set<GroupNumber> own = hosts_of(input.tensor);
      if (!hosts) hosts = own;
      std::erase_if(*hosts, [&](GroupNumber host) { return !own.contains(host); });
    }
    return !hosts.value_or(hosts_).empty();
  }

  // Whether a kernel reads a tensor only to compare it: for `uses`, or for uses of predicates that were chosen before.
  bool only_compares(GroupNumber kernel, TensorId tensor, const std::set<OperatorId>& uses) const {
    const std::vector<OperatorId>& readers = near_.readers[tensor.at()];
    return std::all_of(readers.begin(), readers.end(), [&](OperatorId reader) {
      return group_of_[reader.at()] != kernel || uses.contains(reader) || comparing_.contains(reader);
    });
  }

  // Whether forward writes a tensor only for such comparisons.
  bool is_saved_for(const std::set<OperatorId>& uses, TensorId tensor) const {
    const OperatorId producer = near_.producers[tensor.at()];
    if (!producer.valid() || near_.leaves[tensor.at()]) return false;
    const std::vector<OperatorId>& readers = near_.readers[tensor.at()];
    return std::all_of(readers.begin(), readers.end(), [&](OperatorId reader) {
      return group_of_[reader.at()] == group_of_[producer.at()] || uses.contains(reader) || comparing_.contains(reader);
    });
  }

  std::vector<TensorId> compared(const Predicate& predicate) const {
    std::vector<TensorId> tensors;
    for (const Access& input : predicate.inputs) {
      const bool again = std::find(tensors.begin(), tensors.end(), input.tensor) != tensors.end();
      if (words_of(near_.graph, input.tensor) > 0 && !again) tensors.push_back(input.tensor);
    }
    return tensors;
  }

  // The words of the saved outcome.
  int64_t words_as_bits(const Predicate& predicate) const {
    int64_t points = 1;
    for (const DimId dim : predicate.space) points *= near_.graph.extent(dim);
    return (points + kBooleansPerWord - 1) / kBooleansPerWord;
  }

  // Predicates that compare the same tensors, such as a < b and b < a. A tensor need not be read only if all of them
  // are saved.
  std::vector<std::vector<size_t>> of_the_same_tensors(const std::set<size_t>& except) const {
    std::vector<std::vector<size_t>> found;
    std::map<std::set<TensorId>, size_t> numbers;
    for (size_t k = 0; k < predicates_.size(); ++k) {
      if (except.contains(k) || !has_host(predicates_[k])) continue;
      const std::vector<TensorId> tensors = compared(predicates_[k]);
      const auto [at, added] = numbers.try_emplace({tensors.begin(), tensors.end()}, found.size());
      if (added) found.emplace_back();
      found[at->second].push_back(k);
    }
    return found;
  }

  std::set<OperatorId> uses_of(const std::vector<size_t>& together) const {
    std::set<OperatorId> uses;
    for (const size_t number : together) uses.insert(predicates_[number].uses.begin(), predicates_[number].uses.end());
    return uses;
  }

  // The uses of a predicate in a kernel.
  std::vector<OperatorId> uses_in(GroupNumber kernel, size_t number) const {
    std::vector<OperatorId> uses;
    for (const OperatorId use : predicates_[number].uses) {
      if (group_of_[use.at()] == kernel) uses.push_back(use);
    }
    return uses;
  }

  // The tensors that a kernel no longer reads if the predicates are saved; none if that moves as many words.
  std::vector<TensorId> unread_by(GroupNumber kernel, const std::vector<size_t>& together, int64_t& words) const {
    const std::set<OperatorId> all = uses_of(together);
    int64_t less = 0;
    for (const size_t number : together)
      less -= uses_in(kernel, number).empty() ? 0 : words_as_bits(predicates_[number]);
    std::vector<TensorId> unread;
    for (const TensorId tensor : compared(predicates_[together[0]])) {
      if (!only_compares(kernel, tensor, all)) continue;
      less += words_of(near_.graph, tensor);
      unread.push_back(tensor);
    }
    if (less <= 0) return {};
    words += less;
    return unread;
  }

  // Which of the predicates that compare the same tensors to save; nothing if no words are saved.
  std::vector<Saved> consider(const std::vector<size_t>& together) const {
    std::vector<Saved> saved;
    for (const size_t number : together) saved.push_back({number, {}, {}});
    std::set<GroupNumber> kernels;
    for (const OperatorId use : uses_of(together)) kernels.insert(group_of_[use.at()]);
    int64_t words = 0;
    std::set<OperatorId> uses;
    for (const GroupNumber kernel : kernels) {
      const std::vector<TensorId> unread = unread_by(kernel, together, words);
      if (unread.empty()) continue;
      for (Saved& one : saved) {
        const std::vector<OperatorId> here = uses_in(kernel, one.predicate);
        one.uses.insert(one.uses.end(), here.begin(), here.end());
        uses.insert(here.begin(), here.end());
        for (const TensorId tensor : unread) {
          if (!here.empty()) one.unread.emplace_back(kernel, tensor);
        }
      }
    }
    std::erase_if(saved, [](const Saved& one) { return one.uses.empty(); });
    for (const Saved& one : saved) words -= words_as_bits(predicates_[one.predicate]);
    for (const TensorId tensor : compared(predicates_[together[0]]))
      words += is_saved_for(uses, tensor) ? words_of(near_.graph, tensor) : 0;
    return words > 0 ? saved : std::vector<Saved>{};
  }

  Neighbourhood near_;
  const FusedGraph& fused_;
  const std::vector<Predicate>& predicates_;
  std::vector<GroupNumber> group_of_;  // one per operator
  std::set<GroupNumber> absorbed_;     // by products, as epilogues
  std::set<GroupNumber> hosts_;
  std::set<OperatorId> comparing_;  // uses of the predicates chosen so far
  std::set<size_t> taken_;          // those predicates
};

// Makes the training graph with the comparisons at the end of forward, in the order of `chosen`.
class PredicateSaver {
 public:
  PredicateSaver(TrainingGraph training, const std::vector<Predicate>& predicates, const std::vector<Saved>& chosen)
      : made_(std::move(training)), predicates_(predicates), chosen_(chosen) {}

  TrainingGraph make() {
    Graph& graph = made_.graph;
    UniqueNames operator_names;
    UniqueNames tensor_names;
    for (const Operator& op : graph.operators) operator_names.claim(op.name);
    for (const Tensor& tensor : graph.tensors) tensor_names.claim(tensor.name);
    std::vector<Operator> comparisons;
    for (const Saved& saved : chosen_) {
      const Predicate& predicate = predicates_[saved.predicate];
      const Tensor& first = graph.tensor(predicate.inputs[0].tensor);
      const bool sign = first.role == TensorRole::constant && first.value == 0;
      const bool second = words_of(graph, predicate.inputs[0].tensor) == 0;
      const std::string& compared = graph.tensor(predicate.inputs[second ? 1 : 0].tensor).name;
      const std::string tensor_name = tensor_names.take(compared + (sign ? ".positive" : ".less"), ".");
      Operator op;
      op.kind = OperatorKind::less;
      op.name = operator_names.take(compared + (sign ? " positive" : " less"), " ");
      op.space = predicate.space;
      op.reduced.resize(op.space.size(), false);
      op.inputs = predicate.inputs;
      const Access outcome{TensorId(graph.tensors.size()), in_order(op.space.size())};
      graph.tensors.push_back({tensor_name, DType::boolean, op.space, TensorRole::computed, 0});
      op.outputs = {outcome};
      for (const OperatorId use : saved.uses) read_outcome(graph.operators[use.at()], outcome);
      comparisons.push_back(std::move(op));
    }
    keep();
    const auto begin = std::find_if(graph.operators.begin(), graph.operators.end(),
                                    [](const Operator& op) { return op.pass == Pass::backward; });
    const auto forward = static_cast<size_t>(begin - graph.operators.begin());
    for (size_t k = 0; k < comparisons.size(); ++k) made_.predicates.emplace_back(forward + k);
    graph.operators.insert(begin, comparisons.begin(), comparisons.end());
    return std::move(made_);
  }

 private:
  // A ReLU's gradient reads the outcome instead of the ReLU's output; a comparison becomes a copy of the outcome.
  static void read_outcome(Operator& use, const Access& outcome) {
    if (use.kind == OperatorKind::relu_dx) {
      use.inputs[0] = outcome;
      return;
    }
    use.kind = OperatorKind::copy;
    use.inputs = {outcome};
  }

  // Updates `kept`. Runs before the comparisons are inserted, which moves backward's operators by their number.
  void keep() {
    const auto reads = [&](OperatorId op, TensorId tensor) {
      const std::vector<Access>& inputs = made_.graph.operators[op.at()].inputs;
      return std::any_of(inputs.begin(), inputs.end(), [&](const Access& input) { return input.tensor == tensor; });
    };
    for (const Saved& saved : chosen_) {
      const Access& outcome = made_.graph.operators[saved.uses.front().at()].inputs[0];
      made_.kept.push_back({outcome.tensor, Keeping::saved, saved.uses});
    }
    for (Kept& entry : made_.kept) {
      if (entry.keeping != Keeping::recomputed)
        std::erase_if(entry.readers, [&](OperatorId reader) { return !reads(reader, entry.tensor); });
      for (OperatorId& reader : entry.readers) reader = OperatorId(reader.at() + chosen_.size());
    }
    std::erase_if(made_.kept, [](const Kept& entry) { return entry.readers.empty(); });
  }

  TrainingGraph made_;
  const std::vector<Predicate>& predicates_;
  const std::vector<Saved>& chosen_;
};

// The predicates whose kernels did not fuse as expected: the forward kernel must read no extra tensor, and each
// backward kernel must stay one group and no longer read the compared tensor.
std::set<size_t> not_as_expected(const FusedGraph& before, const std::vector<Saved>& chosen,
                                 const TrainingGraph& training, const FusedGraph& fused) {
  const Graph& graph = training.graph;
  const std::vector<GroupNumber> group_of = group_numbers(fused);
  const std::set<OperatorId> added(training.predicates.begin(), training.predicates.end());
  const auto has_anyway = [&](const FusedOperator& group, TensorId tensor) {
    return std::any_of(group.members.begin(), group.members.end(), [&](OperatorId member) {
      const Operator& op = graph.operators[member.at()];
      const auto touches = [&](const Access& access) { return access.tensor == tensor; };
      return !added.contains(member) && (std::any_of(op.inputs.begin(), op.inputs.end(), touches) ||
                                         std::any_of(op.outputs.begin(), op.outputs.end(), touches));
    });
  };
  std::set<size_t> wrong;
  for (size_t k = 0; k < chosen.size(); ++k) {
    const OperatorId comparison = training.predicates[k];
    for (const Access& input : graph.operators[comparison.at()].inputs) {
      if (words_of(graph, input.tensor) > 0 && !has_anyway(fused.groups[group_of[comparison.at()]], input.tensor))
        wrong.insert(chosen[k].predicate);
    }
    for (const auto& [kernel, tensor] : chosen[k].unread) {
      const std::vector<OperatorId>& members = before.groups[kernel].members;
      const GroupNumber number = group_of[members.front().at() + chosen.size()];
      const bool together = std::all_of(members.begin(), members.end(), [&](OperatorId member) {
        return group_of[member.at() + chosen.size()] == number;
      });
      const std::vector<TensorId>& reading = fused.groups[number].reads;
      const bool reads = std::find(reading.begin(), reading.end(), tensor) != reading.end();
      if (!together || reads) wrong.insert(chosen[k].predicate);
    }
  }
  return wrong;
}

}  // namespace

Recomputed save_predicates(const TrainingGraph& training, bool epilogues) {
  const FusedGraph fused = fuse(training);
  return save_predicates(training, fused, recompute(training, fused, epilogues), epilogues);
}

Recomputed save_predicates(const TrainingGraph& training, const FusedGraph& fused, Recomputed without, bool epilogues) {
  constexpr int kRounds = 4;  // each fuses again; one attempt suffices if kernels fuse as expected
  TrainingGraph with_zero = training;
  const std::vector<Predicate> predicates = find_predicates(with_zero.graph);
  std::set<size_t> except;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Saved> chosen = PredicateChooser(with_zero, fused, predicates, epilogues).choose(except);
    if (chosen.empty()) break;
    const TrainingGraph saving = PredicateSaver(with_zero, predicates, chosen).make();
    FusedGraph saving_fused = fuse(saving);
    const std::set<size_t> wrong = not_as_expected(fused, chosen, saving, saving_fused);
    if (wrong.empty()) {
      Recomputed made = recompute(saving, std::move(saving_fused), epilogues);
      return moved_words(made.fused) < moved_words(without.fused) ? std::move(made) : std::move(without);
    }
    except.insert(wrong.begin(), wrong.end());
  }
  return without;
}

}  // namespace millrace
