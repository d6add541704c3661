#include <algorithm>

#include "base/text.h"
#include "report/fusion_report.h"
#include "report/table.h"
#include "report/wrap.h"

namespace millrace {
namespace {

std::vector<std::string> names_of(const Graph& graph, const std::vector<OperatorId>& operators) {
  std::vector<std::string> names;
  for (const OperatorId id : operators) names.push_back(graph.operators[id.at()].name);
  return names;
}

std::string words_cell(int64_t words, const Unit& unit) {
  return fixed(static_cast<double>(words) / unit.divisor, unit.divisor == 1 ? 0 : 2);
}

std::string percent_less(int64_t before, int64_t after) {
  return before == 0 ? "-" : fixed(100.0 * static_cast<double>(before - after) / static_cast<double>(before), 2) + " %";
}

std::string groups_table(const Graph& graph, const FusedGraph& fused, const Unit& unit, size_t width) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right});
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward) table.line("");
    table.row({name_of(pass), "paper", "operators", unit.prefix + "words before", "after", "less"});
    for (const FusedOperator& op : fused.groups) {
      if (op.pass != pass || op.kind == FusedKind::contraction) continue;
      const std::string name = op.members.size() == 1 ? graph.operators[op.members[0].at()].name : op.name;
      table.row({concat("  ", name), op.paper_name, concat(op.members.size()), words_cell(op.words_before, unit),
                 words_cell(op.words_after, unit), percent_less(op.words_before, op.words_after)});
      if (op.members.size() > 1) {
        std::string members = wrapped(names_of(graph, op.members), ", ", {width, "      ", "      "});
        members.pop_back();
        table.line(members);
      }
    }
  }
  return table.text(width);
}

std::string joined_text(const Graph& graph, const FusedGraph& fused, const Unit& unit, size_t width) {
  Table table({Align::left, Align::left, Align::right});
  table.row({"joins that products can skip", "products", unit.prefix + "words less"});
  for (const JoinedStack& stack : fused.joined_stacks) {
    table.row({concat("  ", graph.operators[stack.operators.back().at()].name),
               join(names_of(graph, stack.readers), ", "), words_cell(stack.words_saved, unit)});
  }
  return table.text(width);
}

std::string attentions_text(const std::vector<AttentionAlternative>& attentions, const Unit& unit, size_t width) {
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"attentions that can be one launch", "launches separately", unit.prefix + "words separately", "fused"});
  for (const AttentionAlternative& attention : attentions) {
    table.row({concat("  ", attention.name), concat(attention.launches_apart), words_cell(attention.words_apart, unit),
               words_cell(attention.words_fused, unit)});
    std::string operators = wrapped(attention.operators, ", ", {width, "      ", "      "});
    operators.pop_back();
    table.line(operators);
  }
  return table.text(width);
}

std::string alternatives_text(const Graph& graph, const FusedGraph& fused,
                              const std::vector<AttentionAlternative>& attentions, const Unit& unit, size_t width) {
  Table table({Align::left, Align::right, Align::right});
  if (!fused.stackings.empty())
    table.row({"contractions that can be stacked", unit.prefix + "words separately", "stacked"});
  for (const Stacking& stacking : fused.stackings) {
    table.row({concat("  ", join(names_of(graph, stacking.contractions), ", ")),
               words_cell(stacking.words_separate, unit), words_cell(stacking.words_stacked, unit)});
  }
  std::string text = table.text(width);
  Table epilogues({Align::left, Align::left, Align::right});
  if (!fused.epilogues.empty()) epilogues.row({"what a GEMM epilogue can fuse", "", unit.prefix + "words less"});
  for (const Epilogue& epilogue : fused.epilogues) {
    epilogues.row({concat("  ", graph.operators[epilogue.contraction.at()].name), epilogue.name,
                   words_cell(epilogue.words_saved, unit)});
  }
  if (!text.empty() && !fused.epilogues.empty()) text += "\n";
  text += epilogues.text(width);
  if (!fused.joined_stacks.empty()) text += concat(text.empty() ? "" : "\n", joined_text(graph, fused, unit, width));
  if (!attentions.empty()) text += concat(text.empty() ? "" : "\n", attentions_text(attentions, unit, width));
  return text;
}

}  // namespace

std::string fusion_text(const TrainingGraph& training, const FusedGraph& fused,
                        const std::vector<AttentionAlternative>& attentions, size_t width) {
  const Graph& graph = training.graph;
  int64_t largest = 0;
  int64_t contraction_words = 0;
  size_t contractions = 0;
  for (const FusedOperator& op : fused.groups) {
    largest = std::max(largest, op.words_before);
    if (op.kind != FusedKind::contraction) continue;
    contraction_words += op.words_after;
    ++contractions;
  }
  const Unit unit = unit_for(std::min(static_cast<double>(largest), 99e6));
  std::string text = concat(graph.name, "\n\n", groups_table(graph, fused, unit, width), "\n");

  Table totals({Align::left, Align::right, Align::right, Align::right, Align::right});
  totals.row({"in total", "launches", unit.prefix + "words before", "after", "less"});
  totals.row({"  kernels", concat(fused.groups.size() - contractions),
              words_cell(fused.words_before - contraction_words, unit),
              words_cell(fused.words_after - contraction_words, unit),
              percent_less(fused.words_before - contraction_words, fused.words_after - contraction_words)});
  totals.row({"  contractions", concat(contractions), words_cell(contraction_words, unit),
              words_cell(contraction_words, unit), percent_less(contraction_words, contraction_words)});
  const auto total_row = [&](const char* name, int64_t after) {
    totals.row({name, concat(fused.groups.size()), words_cell(fused.words_before, unit), words_cell(after, unit),
                percent_less(fused.words_before, after)});
  };
  total_row("  all, masks as words", fused.words_after_by_mask[0]);
  if (fused.words_after_by_mask[1] != fused.words_after_by_mask[0]) {
    total_row("  all, masks as bits", fused.words_after_by_mask[1]);
    total_row("  all, masks regenerated", fused.words_after_by_mask[2]);
  }
  text += totals.text(width) + "\n";
  const std::string alternatives = alternatives_text(graph, fused, attentions, unit, width);
  if (!alternatives.empty()) text += concat("Alternatives, chosen by measurement:\n\n", alternatives, "\n");
  text += concat(graph.operators.size(), " operators became ", fused.groups.size(),
                 " launches; --explain says why each pair was fused or not.\n");
  return text;
}

std::string pairs_text(const TrainingGraph& training, const std::vector<PairExplanation>& pairs) {
  const Graph& graph = training.graph;
  const auto shown = [&](const PairExplanation& pair) {
    return concat(graph.operators[pair.first.at()].name, " | ", graph.operators[pair.second.at()].name);
  };
  std::string text = "fused\n";
  for (const PairExplanation& pair : pairs) {
    if (pair.fused) text += concat("  ", shown(pair), "\n      ", pair.reason, "\n");
  }
  std::vector<std::string> reasons;  // in the order of first occurrence
  for (const PairExplanation& pair : pairs) {
    if (!pair.fused && std::find(reasons.begin(), reasons.end(), pair.reason) == reasons.end())
      reasons.push_back(pair.reason);
  }
  for (const std::string& reason : reasons) {
    text += concat("\nnot fused: ", reason, "\n");
    for (const PairExplanation& pair : pairs) {
      if (!pair.fused && pair.reason == reason) text += concat("  ", shown(pair), "\n");
    }
  }
  return text;
}

}  // namespace millrace
