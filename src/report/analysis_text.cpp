#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/analysis_report.h"
#include "report/table.h"

namespace millrace {
namespace {

struct Units {
  Unit flop;
  Unit words;
  int words_decimals = 2;
};

Units units_for(const Analysis& analysis) {
  double flop = 0;
  double words = 0;
  for (const OperatorAnalysis& row : analysis.operators) {
    flop = std::max(flop, static_cast<double>(row.flop));
    words = std::max(words, static_cast<double>(row.words()));
  }
  // The paper's table is in 10^6 words; only larger programs need more.
  Units units{unit_for(flop), unit_for(std::min(words, 99e6)), 2};
  if (units.words.divisor == 1) units.words_decimals = 0;
  return units;
}

std::string count(double value, const Unit& unit, int decimals) {
  return fixed(value / unit.divisor, unit.divisor == 1 ? 0 : decimals);
}

std::string percent(double share, double whole) { return whole == 0 ? "-" : fixed(100 * share / whole, 2); }

// Sums over flop or words may exceed the columns' unit by far. They keep it, so that columns can be added up.
void totals_rows(Table& table, const std::string& name, const Totals& totals, const Totals& all, const Units& units) {
  const auto flop = static_cast<double>(totals.flop);
  const auto words = static_cast<double>(totals.words());
  table.row({name, concat(totals.operators), count(flop, units.flop, 3), percent(flop, static_cast<double>(all.flop)),
             count(words, units.words, units.words_decimals), percent(words, static_cast<double>(all.words())),
             words == 0 ? "-" : fixed(flop / words, 1)});
}

std::string sizes_line(const Graph& graph) {
  std::vector<std::string> sizes;
  for (const Dim& dim : graph.dims) {
    if (is_size(dim)) sizes.push_back(concat(dim.name, "=", dim.extent));
  }
  return join(sizes, " ");
}

}  // namespace

std::string analysis_text(const TrainingGraph& training, const Analysis& analysis, size_t width) {
  const Graph& graph = training.graph;
  const Units units = units_for(analysis);
  std::string text = concat(graph.name, "  ", sizes_line(graph), "\n\n");

  Table operators({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  bool first = true;
  Pass pass = Pass::forward;
  for (const OperatorAnalysis& row : analysis.operators) {
    const Operator& op = graph.operators[row.op.at()];
    if (first || pass != op.pass) {
      if (!first) operators.line("");
      first = false;
      pass = op.pass;
      operators.row({name_of(pass), "class", units.flop.prefix + "flop", units.words.prefix + "words in", "out",
                     "flop/word", "I/O bound"});
    }
    const auto words_cell = [&](int64_t words) {
      return count(static_cast<double>(words), units.words, units.words_decimals);
    };
    operators.row({concat("  ", op.name), std::string(name_of(row.operator_class)),
                   count(static_cast<double>(row.flop), units.flop, 3), words_cell(row.input_words),
                   words_cell(row.output_words), fixed(row.flop_per_word(), 1), words_cell(row.io_lower_bound)});
  }
  text += operators.text(width) + "\n";

  Table totals({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  totals.row(
      {"in total", "operators", units.flop.prefix + "flop", "%", units.words.prefix + "words", "%", "flop/word"});
  for (const OperatorClass operator_class :
       {OperatorClass::contraction, OperatorClass::normalization, OperatorClass::elementwise}) {
    totals_rows(totals, concat("  ", name_of(operator_class)),
                analysis.by_class.at(static_cast<size_t>(operator_class)), analysis.total, units);
  }
  totals_rows(totals, "  forward", analysis.by_pass[0], analysis.total, units);
  totals_rows(totals, "  backward", analysis.by_pass[1], analysis.total, units);
  totals_rows(totals, "  all", analysis.total, analysis.total, units);
  text += totals.text(width) + "\n";

  const Totals& contractions = analysis.by_class[as_index(OperatorClass::contraction)];
  const double other_flop = static_cast<double>(analysis.total.flop - contractions.flop);
  const double other_words = static_cast<double>(analysis.total.words() - contractions.words());
  text += concat("Operators that are not contractions do ",
                 percent(other_flop, static_cast<double>(analysis.total.flop)), " % of the flop and move ",
                 percent(other_words, static_cast<double>(analysis.total.words())), " % of the words.\n");
  text += concat("Forward saves ", count(static_cast<double>(analysis.saved_words), units.words, units.words_decimals),
                 " ", units.words.prefix, "words for backward; --graph shows which and why.\n");
  return text;
}

}  // namespace millrace
