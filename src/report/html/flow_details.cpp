// The details that the page shows for the boxes and lines of a graph.
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/flow.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

class Details {
 public:
  Details(const ReportArtefacts& artefacts, const StepMetrics& metrics)
      : artefacts_(artefacts), metrics_(metrics), words_(artefacts.training.graph, artefacts.candidates) {
    for (const Tensor& tensor : artefacts.training.graph.tensors) tensors_[tensor.name] = &tensor;
  }

  std::string of(const Flow& flow) const {
    Json root = {{"tensors", Json::array()}, {"nodes", Json::array()}};
    for (const FlowTensor& tensor : flow.tensors) root["tensors"].push_back(of_tensor(tensor));
    for (const FlowNode& node : flow.nodes) root["nodes"].push_back(of_node(node));
    return root.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  static void tell(Json& facts, const char* what, const std::string& value) {
    if (!value.empty()) facts.push_back(Json::array({what, value}));
  }

  Json of_tensor(const FlowTensor& tensor) const {
    Json facts = Json::array();
    if (const auto found = tensors_.find(tensor.name); found != tensors_.end()) {
      std::vector<std::string> axes;
      for (const DimId dim : found->second->dims)
        axes.push_back(concat(artefacts_.training.graph.dims[dim.at()].name, "=",
                              artefacts_.training.graph.dims[dim.at()].extent));
      tell(facts, "shape", join(axes, ", "));
      tell(facts, "stored as", std::string(name_of(found->second->dtype)));
    }
    tell(facts, "layout, outermost first", tensor.layout);
    tell(facts, "size", concat(short_bytes(tensor.bytes), ", ", short_count(tensor.words), " words"));
    return {{"name", tensor.name}, {"facts", std::move(facts)}};
  }

  Json of_node(const FlowNode& node) const {
    if (node.piece == nullptr) return {{"tensor", node.number}};
    const Piece& piece = *node.piece;
    Json made = {{"name", piece.name}, {"facts", facts_of(piece)}, {"reads", node.reads}, {"writes", node.writes}};
    if (piece.operators.size() > 1) made["operators"] = names_of(piece.operators);
    const bool launch = !piece.candidate.empty();
    if (launch && node.number < artefacts_.sources.size() && !artefacts_.sources[node.number].empty())
      made["source"] = artefacts_.sources[node.number];
    return made;
  }

  Json facts_of(const Piece& piece) const {
    Json facts = Json::array();
    tell(facts, "class", piece.conversion ? "layout conversion" : std::string(name_of(piece.operator_class)));
    tell(facts, "pass", name_of(piece.pass));
    if (piece.seconds > 0) tell(facts, "time", shown_seconds(piece.seconds));
    if (const std::optional<Limit> limit = limit_of(piece, metrics_.peaks))
      tell(facts, "limited by",
           concat(limit->flop ? "arithmetic" : "memory", ", which explains ", fixed(100 * limit->fraction, 0),
                  " % of the time"));
    tell(facts, "flop", short_count(static_cast<double>(piece.flop)));
    tell(facts, "words in", short_count(static_cast<double>(piece.input_words)));
    tell(facts, "words out", short_count(static_cast<double>(piece.output_words)));
    tell(facts, "flop per word", fixed(piece.flop_per_word(), 2));
    tell(facts, "bytes moved", piece.bytes > 0 ? short_bytes(piece.bytes) : "");
    if (!piece.candidate.empty() && !piece.conversion)
      tell(facts, "implementation", words_.of(piece.name, piece.candidate));
    tell(facts, "candidate", piece.candidate);
    return facts;
  }

  Json names_of(const std::vector<OperatorId>& operators) const {
    Json names = Json::array();
    for (const OperatorId op : operators) names.push_back(artefacts_.training.graph.operators[op.at()].name);
    return names;
  }

  const ReportArtefacts& artefacts_;
  const StepMetrics& metrics_;
  CandidateWords words_;
  std::map<std::string, const Tensor*> tensors_;
};

}  // namespace

std::string flow_details(const ReportArtefacts& artefacts, const StepMetrics& metrics, const Flow& flow) {
  return Details(artefacts, metrics).of(flow);
}

}  // namespace millrace
