#include "analysis/analyze.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/checked.h"

namespace millrace {
namespace {

int64_t words_read(const Graph& graph, const Operator& op) {
  std::map<TensorId, std::vector<TensorUse>> uses;
  for (size_t input = 0; input < op.inputs.size(); ++input) uses[op.inputs[input].tensor].push_back({&op, input});
  int64_t words = 0;
  for (const auto& [tensor, own] : uses) words += words_touched(graph, own);
  return words;
}

int64_t words_written(const Graph& graph, const Operator& op) {
  int64_t words = 0;
  for (const Access& output : op.outputs) words += words_of(graph, output.tensor);
  return words;
}

// Jia-Wei and Kung: a product of 2·m·n·k flop with S words of fast memory moves at least 2·m·n·k/√S words. Every
// operator moves its inputs and outputs at least once.
int64_t io_lower_bound(const OperatorAnalysis& row, int64_t fast_memory_words) {
  const int64_t compulsory = row.words();
  if (row.operator_class != OperatorClass::contraction) return compulsory;
  const double reuse = static_cast<double>(row.flop) / std::sqrt(static_cast<double>(fast_memory_words));
  return std::max(compulsory, static_cast<int64_t>(std::ceil(reuse)));
}

bool add(Totals& totals, const OperatorAnalysis& row) {
  ++totals.operators;
  bool fits = true;
  const auto grow = [&](int64_t& total, int64_t amount) {
    const std::optional<int64_t> sum = checked_add(total, amount);
    fits = fits && sum;
    total = sum.value_or(0);
  };
  grow(totals.flop, row.flop);
  grow(totals.input_words, row.input_words);
  grow(totals.output_words, row.output_words);
  grow(totals.io_lower_bound, row.io_lower_bound);
  // words() must not overflow either.
  return fits && checked_add(totals.input_words, totals.output_words).has_value();
}

}  // namespace

std::vector<OperatorClass> classify(const Graph& graph) {
  const std::vector<OperatorId> producers = producers_of(graph);
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  std::vector<OperatorClass> classes;
  std::vector<bool> softmax_mask(graph.tensors.size(), false);  // masks of the dropouts that belong to a softmax
  for (const Operator& op : graph.operators) {
    classes.push_back(info_of(op.kind).operator_class);
    if (op.kind == OperatorKind::dropout) {
      const TensorId x = op.inputs[0].tensor;
      const OperatorId producer = producers[x.at()];
      const bool after_softmax = producer.valid() && graph.operators[producer.at()].kind == OperatorKind::softmax;
      const auto forward_readers =
          std::count_if(readers[x.at()].begin(), readers[x.at()].end(),
                        [&](OperatorId reader) { return graph.operators[reader.at()].pass == Pass::forward; });
      if (!after_softmax || forward_readers != 1) continue;
      classes.back() = OperatorClass::normalization;
      softmax_mask[op.outputs[1].tensor.at()] = true;
    }
    if (op.kind == OperatorKind::dropout_dx && softmax_mask[op.inputs[0].tensor.at()])
      classes.back() = OperatorClass::normalization;
  }
  return classes;
}

Result<Analysis> analyze(const TrainingGraph& training, int64_t fast_memory_bytes) {
  const Graph& graph = training.graph;
  Analysis analysis;
  int64_t bytes = 2;
  for (const TensorId argument : graph.arguments) bytes = std::max(bytes, bytes_of(graph.tensor(argument).dtype));
  analysis.fast_memory_words = std::max<int64_t>(1, fast_memory_bytes / bytes);
  const std::vector<OperatorClass> classes = classify(graph);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const Operator& op = graph.operators[k];
    OperatorAnalysis row;
    row.op = OperatorId(k);
    row.operator_class = classes[k];
    row.flop = flop_of(graph, op);
    row.input_words = words_read(graph, op);
    row.output_words = words_written(graph, op);
    row.io_lower_bound = io_lower_bound(row, analysis.fast_memory_words);
    const bool fits = add(analysis.by_class.at(static_cast<size_t>(row.operator_class)), row) &&
                      add(analysis.by_pass.at(static_cast<size_t>(op.pass)), row) && add(analysis.total, row);
    if (!fits)
      return Error::make(ErrorKind::bad_input, "the program's flop or words do not fit into 64 bits",
                         "choose smaller sizes");
    analysis.operators.push_back(row);
  }
  for (const Kept& kept : training.kept) {
    if (kept.keeping == Keeping::saved) analysis.saved_words += words_of(graph, kept.tensor);
  }
  return analysis;
}

}  // namespace millrace
