#include <nlohmann/json.hpp>

#include "report/fusion_report.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

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
          {"pass", op.pass == Pass::forward ? "forward" : "backward"},
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
                        const std::vector<PairExplanation>& pairs) {
  const Graph& graph = training.graph;
  Json root = {{"schema_version", kSchemaVersion}, {"program", graph.name}};
  root["groups"] = Json::array();
  for (const FusedOperator& op : fused.groups) root["groups"].push_back(group_json(graph, op));
  root["launches_before"] = graph.operators.size();
  root["launches_after"] = fused.groups.size();
  root["words_before"] = fused.words_before;
  root["words_after"] = fused.words_after;
  root["reduction"] = reduction(fused.words_before, fused.words_after);
  constexpr std::array<const char*, 3> kMasks = {"words", "bits", "drawn"};
  for (size_t k = 0; k < kMasks.size(); ++k) {
    root["masks"][kMasks.at(k)] = {{"words_after", fused.words_after_by_mask.at(k)},
                                   {"reduction", reduction(fused.words_before, fused.words_after_by_mask.at(k))}};
  }
  root["stackings"] = Json::array();
  for (const Stacking& stacking : fused.stackings) {
    root["stackings"].push_back(
        {{"kind", stacking.kind == Stacking::Kind::shared_operand ? "shared_operand" : "summed_results"},
         {"contractions", operators_json(graph, stacking.contractions)},
         {"absorbed", operators_json(graph, stacking.absorbed)},
         {"words_apart", stacking.words_apart},
         {"words_stacked", stacking.words_stacked}});
  }
  root["epilogues"] = Json::array();
  for (const Epilogue& epilogue : fused.epilogues) {
    root["epilogues"].push_back({{"contraction", graph.operators[epilogue.contraction.at()].name},
                                 {"name", epilogue.name},
                                 {"swallowed", operators_json(graph, epilogue.swallowed)},
                                 {"words_saved", epilogue.words_saved}});
  }
  if (!pairs.empty()) root["pairs"] = Json::array();
  for (const PairExplanation& pair : pairs) {
    root["pairs"].push_back({{"operators", operators_json(graph, {pair.first, pair.second})},
                             {"fused", pair.fused},
                             {"reason", pair.reason}});
  }
  return root.dump(2) + "\n";
}

}  // namespace millrace
