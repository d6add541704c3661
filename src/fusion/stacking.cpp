#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "fusion/alternatives.h"

namespace millrace {
namespace {

int64_t words_of_all(const Graph& graph, const std::set<TensorId>& tensors) {
  int64_t words = 0;
  for (const TensorId tensor : tensors) words += words_of(graph, tensor);
  return words;
}

std::set<TensorId> tensors_in(const std::vector<Access>& accesses) {
  std::set<TensorId> tensors;
  for (const Access& access : accesses) tensors.insert(access.tensor);
  return tensors;
}

int64_t words_of_operator(const Graph& graph, const Operator& op) {
  return words_of_all(graph, tensors_in(op.inputs)) + words_of_all(graph, tensors_in(op.outputs));
}

// For each operator, the sets of contractions that contain it or an operator that it depends on. Operators come in
// order.
class Descent {
 public:
  Descent(const Neighbourhood& near, size_t sets)
      : near_(near), words_((sets + kBits - 1) / kBits), rows_(near.graph.operators.size() * words_, 0) {}

  // Adds the sets that the operator's inputs descend from.
  void inherit(OperatorId id) {
    for (const Access& input : near_.op(id).inputs) {
      const OperatorId producer = near_.producers[input.tensor.at()];
      for (size_t k = 0; producer.valid() && k < words_; ++k) rows_[at(id, k)] |= rows_[at(producer, k)];
    }
  }

  bool descends(OperatorId id, size_t set) const { return ((rows_[at(id, set / kBits)] >> (set % kBits)) & 1) != 0; }
  void insert(OperatorId id, size_t set) { rows_[at(id, set / kBits)] |= uint64_t{1} << (set % kBits); }

 private:
  static constexpr size_t kBits = 64;
  size_t at(OperatorId id, size_t word) const { return id.at() * words_ + word; }

  const Neighbourhood& near_;
  size_t words_;
  std::vector<uint64_t> rows_;  // one bit per set
};

// How a contraction uses an operand: for each axis, whether it is contracted, and whether the other operand runs along
// it too. Contractions with the same use of one operand differ only in the other operand, which can be stacked.
using Use = std::vector<int>;

Use use_of(const Operator& op, size_t side) {
  Use use;
  for (const Position& axis : op.inputs[side].axes) {
    for (const IndexTerm& term : axis.terms) {
      const bool in_other = runs_along(op.inputs[1 - side], as_index(term.index));
      use.push_back((op.reduced[as_index(term.index)] ? 1 : 0) + (in_other ? 2 : 0));
    }
    if (axis.terms.empty()) use.push_back(0);
  }
  return use;
}

// All subsets of two or more, largest first; of a set of more than four, only the whole set and pairs of neighbours.
std::vector<std::vector<OperatorId>> subsets_of(const Neighbourhood& near, std::vector<OperatorId> set) {
  std::vector<std::vector<OperatorId>> subsets;
  if (set.size() > 4) {
    subsets.push_back(set);
    // Neighbours by name, so that the result does not depend on the order of the operators.
    std::sort(set.begin(), set.end(), [&](OperatorId l, OperatorId r) { return near.op(l).name < near.op(r).name; });
    for (size_t k = 1; k < set.size(); ++k) subsets.push_back({set[k - 1], set[k]});
    return subsets;
  }
  for (unsigned mask = 1; mask < (1U << set.size()); ++mask) {
    std::vector<OperatorId> subset;
    for (size_t k = 0; k < set.size(); ++k) {
      if ((mask >> k) & 1) subset.push_back(set[k]);
    }
    if (subset.size() >= 2) subsets.push_back(std::move(subset));
  }
  std::stable_sort(subsets.begin(), subsets.end(), [](const auto& l, const auto& r) { return l.size() > r.size(); });
  return subsets;
}

// Contractions with the same use of one operand.
struct Sharing {
  std::vector<OperatorId> candidates;  // all
  std::vector<OperatorId> set;         // those that do not depend on each other
};

// In the order of their first contraction.
std::vector<Sharing> sharing_contractions(const Neighbourhood& near) {
  std::map<std::tuple<TensorId, Pass, Use>, size_t> numbers;
  std::vector<Sharing> all;
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    const Operator& op = near.graph.operators[k];
    if (op.kind != OperatorKind::contraction || op.inputs.size() > 2) continue;  // their scales may differ
    if (op.inputs[0].tensor == op.inputs[1].tensor) continue;
    for (size_t side : {0U, 1U}) {
      const auto [number, fresh] =
          numbers.try_emplace(std::make_tuple(op.inputs[side].tensor, op.pass, use_of(op, side)), all.size());
      if (fresh) all.emplace_back();
      all[number->second].candidates.emplace_back(k);
    }
  }
  std::erase_if(all, [](const Sharing& sharing) { return sharing.candidates.size() < 2; });
  return all;
}

void choose_independent(const Neighbourhood& near, std::vector<Sharing>& all) {
  std::vector<std::vector<size_t>> sets_of(near.graph.operators.size());
  for (size_t number = 0; number < all.size(); ++number) {
    for (const OperatorId id : all[number].candidates) sets_of[id.at()].push_back(number);
  }
  Descent descent(near, all.size());
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    descent.inherit(OperatorId(k));
    for (const size_t number : sets_of[k]) {
      if (descent.descends(OperatorId(k), number)) continue;
      all[number].set.emplace_back(k);
      descent.insert(OperatorId(k), number);
    }
  }
}

void find_shared_operands(const Neighbourhood& near, std::vector<Stacking>& found) {
  std::vector<Sharing> all = sharing_contractions(near);
  choose_independent(near, all);
  for (const Sharing& sharing : all) {
    if (sharing.set.size() < 2) continue;
    for (std::vector<OperatorId>& subset : subsets_of(near, sharing.set)) {
      Stacking stacking;
      std::set<TensorId> reads;
      for (const OperatorId id : subset) {
        stacking.words_separate += words_of_operator(near.graph, near.op(id));
        reads.merge(tensors_in(near.op(id).inputs));
        stacking.words_stacked += words_of_all(near.graph, tensors_in(near.op(id).outputs));
      }
      stacking.words_stacked += words_of_all(near.graph, reads);
      stacking.contractions = std::move(subset);
      found.push_back(std::move(stacking));
    }
  }
}

// The terms of a tree of additions whose intermediate sums have no other reader.
struct Sum {
  std::vector<OperatorId> contractions;
  std::vector<OperatorId> additions;
  std::vector<TensorId> others;  // terms that are not results of contractions
};

// A product can add one tensor, so a sum with one other term can be stacked as a whole.
constexpr size_t kMostOthers = 1;

// The operator that computes an input of an addition, if only the addition reads its output; otherwise invalid.
OperatorId own_term(const Neighbourhood& near, const Operator& add, const Access& input) {
  const bool doubles = add.inputs[0].tensor == add.inputs[1].tensor;  // one contraction, not two
  const OperatorId producer = near.producers[input.tensor.at()];
  const bool own = !doubles && producer.valid() && near.readers[input.tensor.at()].size() == 1 &&
                   !near.leaves[input.tensor.at()] && near.op(producer).pass == add.pass;
  return own ? producer : OperatorId();
}

enum class Term { contraction, sum, other };

Term kind_of(const Neighbourhood& near, OperatorId own_term) {
  if (!own_term.valid()) return Term::other;
  const Operator& op = near.op(own_term);
  if (op.kind == OperatorKind::contraction && op.inputs.size() == 2) return Term::contraction;
  return op.kind == OperatorKind::add ? Term::sum : Term::other;
}

void collect_sum(const Neighbourhood& near, OperatorId add, Sum& sum) {
  sum.additions.push_back(add);
  for (const Access& input : near.op(add).inputs) {
    const OperatorId producer = own_term(near, near.op(add), input);
    switch (kind_of(near, producer)) {
      case Term::contraction: sum.contractions.push_back(producer); break;
      case Term::sum: collect_sum(near, producer, sum); break;
      case Term::other: sum.others.push_back(input.tensor); break;
    }
  }
}

// For each operator, whether it is the last addition of a sum that can be stacked. Does not collect the sums, because a
// long sum contains many.
std::vector<bool> stackable_sums(const Neighbourhood& near) {
  struct Terms {
    size_t contractions = 0;
    size_t others = 0;
  };
  std::vector<Terms> terms(near.graph.operators.size());
  std::vector<bool> stackable;
  for (size_t k = 0; k < terms.size(); ++k) {
    const Operator& op = near.graph.operators[k];
    if (op.kind == OperatorKind::add) {
      for (const Access& input : op.inputs) {
        const OperatorId producer = own_term(near, op, input);
        const Term kind = kind_of(near, producer);
        const Terms inner = kind == Term::sum ? terms[producer.at()] : Terms();
        terms[k].contractions += inner.contractions + (kind == Term::contraction ? 1 : 0);
        terms[k].others += inner.others + (kind == Term::other ? 1 : 0);
      }
    }
    stackable.push_back(terms[k].contractions >= 2 && terms[k].others <= kMostOthers);
  }
  return stackable;
}

Sum sum_of(const Neighbourhood& near, OperatorId add) {
  Sum sum;
  collect_sum(near, add, sum);
  std::sort(sum.contractions.begin(), sum.contractions.end());
  std::sort(sum.additions.begin(), sum.additions.end());
  return sum;
}

void find_summed_results(const Neighbourhood& near, std::vector<Stacking>& found) {
  const std::vector<bool> stackable = stackable_sums(near);
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    if (!stackable[k]) continue;
    const Operator& op = near.graph.operators[k];
    // Handle a sum of contractions only at its last addition.
    const std::vector<OperatorId>& readers = near.readers[op.outputs[0].tensor.at()];
    if (readers.size() == 1 && near.op(readers[0]).kind == OperatorKind::add && stackable[readers[0].at()] &&
        own_term(near, near.op(readers[0]), op.outputs[0]).valid())
      continue;
    const Sum sum = sum_of(near, OperatorId(k));
    const int64_t result_words = words_of(near.graph, op.outputs[0].tensor);
    for (std::vector<OperatorId>& subset : subsets_of(near, sum.contractions)) {
      Stacking stacking;
      stacking.kind = Stacking::Kind::summed_results;
      const size_t absorbed = subset.size() - 1 + sum.others.size();
      stacking.absorbed.assign(sum.additions.begin(), sum.additions.begin() + static_cast<std::ptrdiff_t>(absorbed));
      std::set<TensorId> reads(sum.others.begin(), sum.others.end());
      for (const OperatorId id : subset) {
        stacking.words_separate += words_of_operator(near.graph, near.op(id));
        reads.merge(tensors_in(near.op(id).inputs));
      }
      for (const OperatorId id : stacking.absorbed)
        stacking.words_separate += words_of_operator(near.graph, near.op(id));
      stacking.words_stacked = words_of_all(near.graph, reads) + result_words;
      stacking.contractions = std::move(subset);
      found.push_back(std::move(stacking));
    }
  }
}

}  // namespace

std::vector<Stacking> find_stackings(const Neighbourhood& near) {
  std::vector<Stacking> found;
  find_shared_operands(near, found);
  find_summed_results(near, found);
  return found;
}

}  // namespace millrace
