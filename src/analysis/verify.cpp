#include "analysis/verify.h"

#include "base/text.h"

namespace millrace {
namespace {

Error broken(const std::string& what) {
  return Error::make(ErrorKind::failed, concat("invalid analysis: ", what),
                     "this is a bug in Millrace: please report it with the program");
}

bool are_equal(const Totals& a, const Totals& b) {
  return a.operators == b.operators && a.flop == b.flop && a.input_words == b.input_words &&
         a.output_words == b.output_words && a.io_lower_bound == b.io_lower_bound;
}

// The sum of the rows for which `counts` is true. analyze() has ruled out overflow.
template <class Counts>
Totals sum_of(const Analysis& analysis, Counts counts) {
  Totals sum;
  for (const OperatorAnalysis& row : analysis.operators) {
    if (!counts(row)) continue;
    ++sum.operators;
    sum.flop += row.flop;
    sum.input_words += row.input_words;
    sum.output_words += row.output_words;
    sum.io_lower_bound += row.io_lower_bound;
  }
  return sum;
}

}  // namespace

Result<Done> verify(const TrainingGraph& training, const Analysis& analysis) {
  const Graph& graph = training.graph;
  if (analysis.operators.size() != graph.operators.size()) return broken("not one row per operator");
  if (analysis.fast_memory_words < 1) return broken("no fast memory");
  for (size_t k = 0; k < analysis.operators.size(); ++k) {
    const OperatorAnalysis& row = analysis.operators[k];
    const std::string& name = graph.operators[k].name;
    if (row.op != OperatorId(k)) return broken(concat(name, " is not in the graph's order"));
    if (row.flop < 0 || row.input_words < 0 || row.output_words < 0)
      return broken(concat(name, " has a negative count"));
    const bool contraction = row.operator_class == OperatorClass::contraction;
    if (contraction ? row.io_lower_bound < row.words() : row.io_lower_bound != row.words())
      return broken(concat(name, " has an I/O lower bound of ", row.io_lower_bound, " and moves ", row.words()));
  }
  for (size_t k = 0; k < analysis.by_class.size(); ++k) {
    const auto of_class = [&](const OperatorAnalysis& row) { return static_cast<size_t>(row.operator_class) == k; };
    if (!are_equal(analysis.by_class.at(k), sum_of(analysis, of_class)))
      return broken("a class's total is not its sum");
  }
  for (size_t k = 0; k < analysis.by_pass.size(); ++k) {
    const auto of_pass = [&](const OperatorAnalysis& row) {
      return static_cast<size_t>(graph.operators[row.op.at()].pass) == k;
    };
    if (!are_equal(analysis.by_pass.at(k), sum_of(analysis, of_pass))) return broken("a pass's total is not its sum");
  }
  if (!are_equal(analysis.total, sum_of(analysis, [](const OperatorAnalysis&) { return true; })))
    return broken("the total is not the sum of all operators");
  int64_t saved = 0;
  for (const Kept& kept : training.kept) saved += kept.keeping == Keeping::saved ? words_of(graph, kept.tensor) : 0;
  if (analysis.saved_words != saved) return broken("saved_words is not the sum of the saved tensors");
  return Done{};
}

}  // namespace millrace
