#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/graph_layout.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kFont = 11;
constexpr double kLine = 14;
constexpr size_t kNameLength = 30;

struct Carried {
  std::string name;
  std::string layout;  // after selection
  double words = 0;
  bool kept = false;  // the caller's, or for the other pass: drawn even if nothing in this pass reads it
};

struct FlowNode {
  std::vector<std::string> lines;
  std::string classes;
  std::string tip;
};

struct FlowEdge {
  size_t from = 0;
  size_t to = 0;
  size_t carried = 0;
};

struct Flow {
  std::vector<Carried> carried;
  std::vector<FlowNode> nodes;
  std::vector<FlowEdge> edges;
};

// What each operator or launch of a pass reads and writes, as positions in the list of carried tensors.
struct Touched {
  const Piece* piece = nullptr;
  std::vector<size_t> reads;
  std::vector<size_t> writes;
};

std::string tip_of(const Piece& piece, const Graph& graph) {
  std::string tip = concat(piece.name, "\n", short_count(static_cast<double>(piece.flop)), " flop, ",
                           short_count(static_cast<double>(piece.input_words)), " words in, ",
                           short_count(static_cast<double>(piece.output_words)), " out, ",
                           fixed(piece.flop_per_word(), 2), " flop per word");
  if (piece.seconds > 0) tip += concat("\n", shown_seconds(piece.seconds));
  if (piece.operators.size() > 1) {
    tip += "\ncarries out";
    for (const OperatorId op : piece.operators) tip += concat(" ", graph.operators[op.at()].name);
  }
  if (!piece.candidate.empty()) tip += concat("\n", piece.candidate);
  return tip;
}

Flow make_flow(const Graph& graph, std::vector<Carried> carried, const std::vector<Touched>& pieces) {
  Flow flow;
  flow.carried = std::move(carried);
  std::map<size_t, size_t> writer;
  for (size_t k = 0; k < pieces.size(); ++k) {
    for (const size_t tensor : pieces[k].writes) writer[tensor] = k;
    const Piece& piece = *pieces[k].piece;
    flow.nodes.push_back({{shortened(piece.name, kNameLength),
                           concat(fixed(piece.flop_per_word(), piece.flop_per_word() < 10 ? 1 : 0), " flop/word, ",
                                  short_count(static_cast<double>(piece.input_words + piece.output_words)), " words")},
                          concat("node ", colour_of(piece)),
                          tip_of(piece, graph)});
  }
  const auto leaf = [&](size_t tensor) {
    const Carried& tensor_carried = flow.carried[tensor];
    flow.nodes.push_back(
        {{shortened(tensor_carried.name, kNameLength)},
         "leaf",
         concat(tensor_carried.name, tensor_carried.layout.empty() ? "" : concat(" as ", tensor_carried.layout), ": ",
                short_count(tensor_carried.words), " words")});
    return flow.nodes.size() - 1;
  };
  std::map<size_t, size_t> source;
  std::map<size_t, bool> read;
  for (size_t k = 0; k < pieces.size(); ++k) {
    for (const size_t tensor : pieces[k].reads) {
      read[tensor] = true;
      const auto made = writer.find(tensor);
      size_t from = made != writer.end() ? made->second : 0;
      if (made == writer.end()) {
        const auto known = source.find(tensor);
        from = known != source.end() ? known->second : leaf(tensor);
        source[tensor] = from;
      }
      flow.edges.push_back({from, k, tensor});
    }
  }
  for (const auto& [tensor, k] : writer) {
    if (!flow.carried[tensor].kept && read.contains(tensor)) continue;
    const size_t to = leaf(tensor);
    flow.edges.push_back({k, to, tensor});
  }
  return flow;
}

std::string draw(const Flow& flow, const std::string& label, GraphLayout& layout) {
  std::vector<LayeredNode> boxes;
  for (const FlowNode& node : flow.nodes) {
    double width = 0;
    for (const std::string& line : node.lines) width = std::max(width, text_width(line, kFont));
    boxes.push_back({width + 14, kLine * static_cast<double>(node.lines.size()) + 8});
  }
  std::vector<LayeredEdge> lines;
  double most = 1;
  for (const FlowEdge& edge : flow.edges) {
    lines.push_back({edge.from, edge.to});
    most = std::max(most, flow.carried[edge.carried].words);
  }
  const LayeredDrawing drawing = layout.draw(boxes, lines);
  Svg svg(drawing.width, drawing.height, label);
  for (size_t k = 0; k < flow.edges.size(); ++k) {
    const Carried& tensor_carried = flow.carried[flow.edges[k].carried];
    const double width = 0.8 + 7 * std::sqrt(tensor_carried.words / most);
    const std::string tip =
        concat(tensor_carried.name, tensor_carried.layout.empty() ? "" : concat(" as ", tensor_carried.layout), ": ",
               short_count(tensor_carried.words), " words");
    if (drawing.splines) {
      svg.spline(drawing.edges[k], "flow", width, tip);
    } else {
      svg.curve(drawing.edges[k], "flow", width, tip);
    }
  }
  for (size_t k = 0; k < flow.nodes.size(); ++k) {
    const Point corner = drawing.nodes[k];
    svg.rectangle(corner, boxes[k].width, boxes[k].height, flow.nodes[k].classes, flow.nodes[k].tip, 4);
    const std::string_view text_class = flow.nodes[k].classes == "leaf" ? "label" : "label on-node";
    for (size_t line = 0; line < flow.nodes[k].lines.size(); ++line) {
      svg.text({corner.x + boxes[k].width / 2, corner.y + kLine * static_cast<double>(line + 1)},
               flow.nodes[k].lines[line], text_class, "middle");
    }
  }
  return std::move(svg).finish();
}

Flow flow_of_operators(const ReportArtefacts& artefacts, const StepMetrics& metrics, Pass pass) {
  const Graph& graph = artefacts.training.graph;
  std::vector<Carried> carried;
  for (size_t k = 0; k < graph.tensors.size(); ++k)
    carried.push_back({graph.tensors[k].name, "", static_cast<double>(words_of(graph, TensorId(k))), false});
  for (const Output& result : graph.results) carried[result.tensor.at()].kept = true;
  for (const Kept& kept : artefacts.training.kept) {
    if (kept.keeping == Keeping::saved) carried[kept.tensor.at()].kept = true;
  }
  std::vector<Touched> pieces;
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const bool left_out = metrics.operators[k].added && metrics.launch_of[k] < 0;
    if (graph.operators[k].pass != pass || left_out) continue;
    Touched touched{&metrics.operators[k], {}, {}};
    for (const auto& [accesses, into] : {std::pair(&graph.operators[k].inputs, &touched.reads),
                                         std::pair(&graph.operators[k].outputs, &touched.writes)}) {
      for (const Access& access : *accesses) {
        const size_t tensor = access.tensor.at();
        if (carried[tensor].words > 0 && std::find(into->begin(), into->end(), tensor) == into->end())
          into->push_back(tensor);
      }
    }
    pieces.push_back(std::move(touched));
  }
  return make_flow(graph, std::move(carried), pieces);
}

Flow flow_of_launches(const ReportArtefacts& artefacts, const StepMetrics& metrics, Pass pass) {
  const Graph& graph = artefacts.training.graph;
  std::map<std::string, double> word_bytes;
  for (const Tensor& tensor : graph.tensors) word_bytes[tensor.name] = static_cast<double>(bytes_of(tensor.dtype));
  std::vector<Carried> carried;
  for (const PlanBuffer& buffer : artefacts.plan.buffers) {
    const bool saved = buffer.first >= 0 &&
                       artefacts.plan.launches[static_cast<size_t>(buffer.first)].pass == Pass::forward &&
                       artefacts.plan.launches[static_cast<size_t>(buffer.last)].pass == Pass::backward;
    const auto word = word_bytes.find(buffer.tensor);
    // As stored: a mask stored as bits has few words.
    const double words = word != word_bytes.end() ? static_cast<double>(buffer.bytes) / word->second : 0;
    carried.push_back({buffer.tensor, buffer.layout, words, saved || buffer.location == BufferLocation::result});
  }
  std::map<std::string, const Partition*> partitions;
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions)
    partitions[candidates.partition.name] = &candidates.partition;
  std::vector<Touched> pieces;
  for (size_t k = 0; k < artefacts.plan.launches.size(); ++k) {
    const PlanLaunch& launch = artefacts.plan.launches[k];
    if (launch.pass != pass) continue;
    const auto partition = partitions.find(launch.partition);
    const size_t reads = partition != partitions.end() ? partition->second->reads.size() : 1;
    Touched touched{&metrics.after[k], {}, {}};
    for (size_t slot = 0; slot < launch.buffers.size(); ++slot) {
      if (launch.buffers[slot] == kNoBuffer) continue;
      std::vector<size_t>& into = slot < reads ? touched.reads : touched.writes;
      const auto buffer = static_cast<size_t>(launch.buffers[slot]);
      if (std::find(into.begin(), into.end(), buffer) == into.end()) into.push_back(buffer);
    }
    pieces.push_back(std::move(touched));
  }
  return make_flow(graph, std::move(carried), pieces);
}

}  // namespace

Picture dataflow_picture(const ReportArtefacts& artefacts, const StepMetrics& metrics, FlowOf source, Pass pass,
                         GraphLayout& layout) {
  const bool before = source == FlowOf::operators;
  const std::string pass_name = name_of(pass);
  const Flow flow = before ? flow_of_operators(artefacts, metrics, pass) : flow_of_launches(artefacts, metrics, pass);
  Picture picture;
  picture.id = concat("dataflow_", pass_name, before ? "_before" : "_after");
  picture.caption = concat(before ? "Before: " : "After: ", pass_name, ", ",
                           before ? "every operator as its own kernel." : "the plan's launches.");
  picture.svg = draw(flow, concat("dataflow of ", pass_name, before ? " before fusion" : " after fusion"), layout);
  picture.folded = before || pass == Pass::backward;
  return picture;
}

}  // namespace millrace
