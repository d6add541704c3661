#include "candidates/accumulations.h"

#include <map>
#include <set>

namespace millrace {
namespace {

// The tensor that an addition adds to `to`, element by element; invalid if it does something else.
TensorId added_to(const Graph& graph, const Operator& addition, TensorId to) {
  if (addition.kind != OperatorKind::add) return {};
  const size_t side = addition.inputs[0].tensor == to ? 0 : 1;
  const Access& other = addition.inputs[1 - side];
  if (addition.inputs[side].tensor != to || other.tensor == to) return {};
  for (const Access* access : {&addition.inputs[side], &other, addition.outputs.data()}) {
    if (!is_whole(graph, addition, *access)) return {};
  }
  const TensorRole role = graph.tensor(other.tensor).role;
  return role == TensorRole::scalar || role == TensorRole::constant ? TensorId() : other.tensor;
}

std::set<TensorId> results_of(const Graph& graph, const std::vector<OperatorId>& contractions) {
  std::set<TensorId> results;
  for (const OperatorId op : contractions) results.insert(graph.operators[op.at()].outputs.front().tensor);
  return results;
}

// A sum in progress: the tensors that are still to be added.
struct Summing {
  const Graph& graph;
  const ReadersOfTensors& readers;
  std::set<TensorId> open;
  std::vector<OperatorId> additions = {};

  // The only reader of a tensor, if it is an addition, and the other summand; else invalid.
  std::pair<OperatorId, TensorId> addition_of(TensorId tensor) const {
    if (readers[tensor.at()].size() != 1) return {};
    const OperatorId reader = readers[tensor.at()].front();
    return {reader, added_to(graph, graph.operators[reader.at()], tensor)};
  }

  void replace_by_sum(TensorId tensor, OperatorId addition) {
    open.erase(tensor);
    open.insert(graph.operators[addition.at()].outputs.front().tensor);
    additions.push_back(addition);
  }

  bool add_two() {
    for (const TensorId tensor : open) {
      const auto [addition, other] = addition_of(tensor);
      if (!other.valid() || !open.contains(other) || readers[other.at()].size() != 1) continue;
      open.erase(other);
      replace_by_sum(tensor, addition);
      return true;
    }
    return false;
  }

  void add_up() {
    while (open.size() > 1 && add_two()) continue;
  }
};

// Whether a tensor is the result of a contraction with one reader.
bool is_only_in_sum(const Graph& graph, const ReadersOfTensors& readers, const std::vector<OperatorId>& producers,
                    TensorId tensor) {
  const OperatorId producer = producers[tensor.at()];
  return producer.valid() && graph.operators[producer.at()].kind == OperatorKind::contraction &&
         readers[tensor.at()].size() == 1;
}

}  // namespace

std::optional<ProductSum> sum_of(const Graph& graph, const ReadersOfTensors& readers,
                                 const std::vector<OperatorId>& contractions) {
  Summing summing{graph, readers, results_of(graph, contractions)};
  summing.add_up();
  if (summing.open.size() > 1) return std::nullopt;
  return ProductSum{*summing.open.begin(), {}, std::move(summing.additions)};
}

std::optional<ProductSum> sum_with_another(const Graph& graph, const ReadersOfTensors& readers,
                                           const std::vector<OperatorId>& producers,
                                           const std::vector<OperatorId>& contractions) {
  const std::set<TensorId> results = results_of(graph, contractions);
  Summing exact{graph, readers, results};
  exact.add_up();
  const Summing from = exact.open.size() == 1 ? exact : Summing{graph, readers, results};
  for (const TensorId summand : from.open) {
    Summing summing = from;
    const auto [addition, added] = summing.addition_of(summand);
    if (!added.valid() || from.open.contains(added) || is_only_in_sum(graph, readers, producers, added)) continue;
    summing.replace_by_sum(summand, addition);
    summing.add_up();
    if (summing.open.size() == 1) return ProductSum{*summing.open.begin(), added, std::move(summing.additions)};
  }
  return std::nullopt;
}

std::vector<std::vector<AddingProduct>> find_accumulations(const Graph& graph, const std::vector<Epilogue>& epilogues) {
  std::map<OperatorId, AddingProduct> by_addition;
  for (const Epilogue& epilogue : epilogues) {
    const Operator& contraction = graph.operators[epilogue.contraction.at()];
    const OperatorId addition = epilogue.absorbed.front();
    if (epilogue.absorbed.size() > 1) continue;
    const TensorId added = added_to(graph, graph.operators[addition.at()], contraction.outputs[0].tensor);
    if (!added.valid()) continue;
    const auto [known, fresh] = by_addition.try_emplace(addition, AddingProduct{epilogue.contraction, addition, added});
    if (!fresh && known->second.contraction < epilogue.contraction)
      known->second = {epilogue.contraction, addition, added};
  }
  const std::vector<OperatorId> producers = producers_of(graph);
  const ReadersOfTensors readers = readers_of(graph);
  std::vector<std::vector<AddingProduct>> found;
  std::map<OperatorId, size_t> sum_of_addition;
  for (const auto& [addition, product] : by_addition) {
    const auto before = sum_of_addition.find(producers[product.added.at()]);
    const bool continues = before != sum_of_addition.end() && readers[product.added.at()].size() == 1;
    const size_t sum = continues ? before->second : found.size();
    if (!continues) found.emplace_back();
    found[sum].push_back(product);
    sum_of_addition[addition] = sum;
  }
  return found;
}

}  // namespace millrace
