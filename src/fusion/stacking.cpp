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

// Whether `last` depends on the earlier operator `first`. Only operators between the two can be on a path.
bool leads_to(const Neighbourhood& near, OperatorId first, OperatorId last) {
  std::set<OperatorId> seen;
  std::vector<OperatorId> open = {first};
  while (!open.empty()) {
    const OperatorId id = open.back();
    open.pop_back();
    for (const Access& output : near.op(id).outputs) {
      for (const OperatorId reader : near.readers[output.tensor.at()]) {
        if (reader == last) return true;
        if (reader < last && seen.insert(reader).second) open.push_back(reader);
      }
    }
  }
  return false;
}

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

void find_shared_operands(const Neighbourhood& near, std::vector<Stacking>& found) {
  std::map<std::tuple<TensorId, Pass, Use>, std::vector<OperatorId>> sets;
  std::vector<std::tuple<TensorId, Pass, Use>> in_order;
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    const Operator& op = near.graph.operators[k];
    if (op.kind != OperatorKind::contraction || op.inputs.size() > 2) continue;  // their scales may differ
    if (op.inputs[0].tensor == op.inputs[1].tensor) continue;
    for (size_t side : {0U, 1U}) {
      const auto key = std::make_tuple(op.inputs[side].tensor, op.pass, use_of(op, side));
      std::vector<OperatorId>& set = sets[key];
      if (set.empty()) in_order.push_back(key);
      const bool waits = std::any_of(set.begin(), set.end(),
                                     [&](OperatorId earlier) { return leads_to(near, earlier, OperatorId(k)); });
      if (!waits) set.emplace_back(k);
    }
  }
  for (const auto& key : in_order) {
    if (sets[key].size() < 2) continue;
    for (std::vector<OperatorId>& subset : subsets_of(near, sets[key])) {
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

  // A product can add one tensor, so a sum with one other term can be stacked as a whole.
  bool can_be_stacked() const { return contractions.size() >= 2 && others.size() <= 1; }
};

void collect_sum(const Neighbourhood& near, OperatorId add, Sum& sum) {
  sum.additions.push_back(add);
  const bool doubles = near.op(add).inputs[0].tensor == near.op(add).inputs[1].tensor;  // one contraction, not two
  for (const Access& input : near.op(add).inputs) {
    const OperatorId producer = near.producers[input.tensor.at()];
    const bool own = !doubles && producer.valid() && near.readers[input.tensor.at()].size() == 1 &&
                     !near.leaves[input.tensor.at()] && near.op(producer).pass == near.op(add).pass;
    if (own && near.is_contraction(producer) && near.op(producer).inputs.size() == 2) {
      sum.contractions.push_back(producer);
    } else if (own && near.op(producer).kind == OperatorKind::add) {
      collect_sum(near, producer, sum);
    } else {
      sum.others.push_back(input.tensor);
    }
  }
}

Sum sum_of(const Neighbourhood& near, OperatorId add) {
  Sum sum;
  collect_sum(near, add, sum);
  std::sort(sum.contractions.begin(), sum.contractions.end());
  std::sort(sum.additions.begin(), sum.additions.end());
  return sum;
}

void find_summed_results(const Neighbourhood& near, std::vector<Stacking>& found) {
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    const Operator& op = near.graph.operators[k];
    if (op.kind != OperatorKind::add) continue;
    // Handle a sum of contractions only at its last addition.
    const std::vector<OperatorId>& readers = near.readers[op.outputs[0].tensor.at()];
    const Sum sum = sum_of(near, OperatorId(k));
    if (!sum.can_be_stacked()) continue;
    if (readers.size() == 1 && near.op(readers[0]).kind == OperatorKind::add) {
      const Sum larger = sum_of(near, readers[0]);
      const bool inside = std::binary_search(larger.additions.begin(), larger.additions.end(), OperatorId(k));
      if (inside && larger.can_be_stacked()) continue;
    }
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
