#include <array>
#include <nlohmann/json.hpp>

#include "report/fusion_report.h"
#include "report/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFusionVersion = 2;

Json operators_json(const Graph& graph, const std::vector<OperatorId>& operators) {
  Json list = Json::array();
  for (const OperatorId id : operators) list.push_back(graph.operators[id.at()].name);
  return list;
}

Json tensors_json(const Graph& graph, const std::vector<TensorId>& tensors) {
  Json list = Json::array();
  for (const TensorId id : tensors) list.push_back(graph.tensor(id).name);
  return list;
}

std::string_view name_of(Implementation implementation) {
  switch (implementation) {
    case Implementation::block: return "block";
    case Implementation::thread: return "thread";
    case Implementation::loop: return "loop";
    case Implementation::warp_reduction: return "warp_reduction";
    case Implementation::block_reduction: return "block_reduction";
    case Implementation::grid_reduction: return "grid_reduction";
  }
  return "";
}

std::string_view kind_of_index(const Graph& graph, const FusedOperator& op, size_t label) {
  for (size_t k = 0; k < op.members.size(); ++k) {
    const Operator& member = graph.operators[op.members[k].at()];
    for (size_t index = 0; index < member.space.size(); ++index) {
      if (op.index_of[k][index] != static_cast<int>(label) || !member.reduced[index]) continue;
      return op.kind == FusedKind::contraction ? "contraction" : "reduced";
    }
  }
  return "independent";
}

Json group_json(const Graph& graph, const FusedOperator& op) {
  Json space = Json::array();
  for (size_t k = 0; k < op.space.size(); ++k) {
    const FusedIndex& index = op.space[k];
    const Dim& dim = graph.dims[index.dim.at()];
    space.push_back({{"dim", dim.name},
                     {"kind", std::string(kind_of_index(graph, op, k))},
                     {"extent", dim.extent},
                     {"place", index.outer ? "outer" : "inner"},
                     {"implementation", std::string(name_of(index.implementation))}});
  }
  return {{"name", op.name},
          {"paper_name", op.paper_name},
          {"pass", name_of(op.pass)},
          {"kind", op.kind == FusedKind::contraction ? "contraction" : "kernel"},
          {"operators", operators_json(graph, op.members)},
          {"space", space},
          {"loops", op.loops},
          {"rereads", op.rereads},
          {"partial_words", op.partial_words},
          {"reads", tensors_json(graph, op.reads)},
          {"writes", tensors_json(graph, op.writes)},
          {"interim", tensors_json(graph, op.interim)},
          {"words_before", op.words_before},
          {"words_after", op.words_after}};
}

double reduction(int64_t before, int64_t after) {
  return before == 0 ? 0.0 : 1.0 - static_cast<double>(after) / static_cast<double>(before);
}

}  // namespace

std::string fusion_json(const TrainingGraph& training, const FusedGraph& fused,
                        const std::vector<AttentionAlternative>& attentions,
                        const std::vector<PairExplanation>& pairs) {
  const Graph& graph = training.graph;
  JsonText text;
  text.field("schema_version", kFusionVersion);
  text.field("program", graph.name);
  text.list("groups", fused.groups.size(), [&](size_t k) { return group_json(graph, fused.groups[k]); });
  text.field("launches_before", graph.operators.size());
  text.field("launches_after", fused.groups.size());
  text.field("words_before", fused.words_before);
  text.field("words_after", fused.words_after);
  text.field("reduction", reduction(fused.words_before, fused.words_after));
  constexpr std::array<const char*, 3> kMasks = {"words", "bits", "regenerated"};
  Json masks = Json::object();
  for (size_t k = 0; k < kMasks.size(); ++k) {
    const int64_t after = fused.words_after_by_mask.at(k);
    masks[kMasks.at(k)] = {{"words_after", after}, {"reduction", reduction(fused.words_before, after)}};
  }
  text.field("masks", masks);
  text.list("stackings", fused.stackings.size(), [&](size_t k) {
    const Stacking& stacking = fused.stackings[k];
    return Json{{"kind", stacking.kind == Stacking::Kind::shared_operand ? "shared_operand" : "summed_results"},
                {"contractions", operators_json(graph, stacking.contractions)},
                {"absorbed", operators_json(graph, stacking.absorbed)},
                {"words_separate", stacking.words_separate},
                {"words_stacked", stacking.words_stacked}};
  });
  text.list("epilogues", fused.epilogues.size(), [&](size_t k) {
    const Epilogue& epilogue = fused.epilogues[k];
    return Json{{"contraction", graph.operators[epilogue.contraction.at()].name},
                {"name", epilogue.name},
                {"absorbed", operators_json(graph, epilogue.absorbed)},
                {"words_saved", epilogue.words_saved}};
  });
  text.list("joined_stacks", fused.joined_stacks.size(), [&](size_t k) {
    const JoinedStack& stack = fused.joined_stacks[k];
    std::vector<std::string> sources;
    for (const TensorId source : stack.sources) sources.push_back(graph.tensor(source).name);
    return Json{{"absorbed", operators_json(graph, stack.operators)},
                {"contractions", operators_json(graph, stack.readers)},
                {"sources", sources},
                {"words_saved", stack.words_saved}};
  });
  text.list("attentions", attentions.size(), [&](size_t k) {
    const AttentionAlternative& attention = attentions[k];
    return Json{{"name", attention.name},
                {"operators", attention.operators},
                {"launches_separate", attention.launches_apart},
                {"words_separate", attention.words_apart},
                {"words_fused", attention.words_fused}};
  });
  if (!pairs.empty()) {
    text.list("pairs", pairs.size(), [&](size_t k) {
      const PairExplanation& pair = pairs[k];
      return Json{{"operators", operators_json(graph, {pair.first, pair.second})},
                  {"fused", pair.fused},
                  {"reason", pair.reason}};
    });
  }
  return std::move(text).finish();
}

}  // namespace millrace
