#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/flow.h"
#include "report/html/legend.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kFont = 11;
constexpr double kLine = 14;
constexpr size_t kBoxLetters = 30;
constexpr double kArrow = 8;  // its length

std::vector<std::string> lines_of(const Flow& flow, const FlowNode& node) {
  if (node.piece == nullptr) return wrapped_lines(flow.tensors[node.number].name, kBoxLetters);
  const Piece& piece = *node.piece;
  std::vector<std::string> lines = wrapped_lines(piece.name, kBoxLetters);
  const double words = static_cast<double>(piece.input_words + piece.output_words);
  const double intensity = piece.flop_per_word();
  lines.push_back(concat(fixed(intensity, intensity < 10 ? 1 : 0), " flop/word, ", short_count(words), " words"));
  if (piece.seconds > 0) lines.push_back(shown_seconds(piece.seconds));
  return lines;
}

std::string tip_of(const Flow& flow, const FlowNode& node) {
  if (node.piece == nullptr) return described(flow.tensors[node.number]);
  const Piece& piece = *node.piece;
  return concat(piece.name, "\n", short_count(static_cast<double>(piece.flop)), " flop, ",
                short_count(static_cast<double>(piece.input_words)), " words in, ",
                short_count(static_cast<double>(piece.output_words)), " out",
                piece.seconds > 0 ? concat("\n", shown_seconds(piece.seconds)) : "");
}

// The line ends where its arrowhead begins.
std::vector<Point> without_arrow(std::vector<Point> points, Point& along) {
  const Point tip = points.back();
  const Point before = points[points.size() - 2];
  const double length = std::hypot(tip.x - before.x, tip.y - before.y);
  along = length > 0 ? Point{(tip.x - before.x) / length, (tip.y - before.y) / length} : Point{0, 1};
  points.back() = {tip.x - kArrow * along.x, tip.y - kArrow * along.y};
  return points;
}

void draw_edge(Svg& svg, const LayeredDrawing& drawing, size_t k, double width) {
  Point along{0, 1};
  const std::vector<Point>& whole = drawing.edges[k];
  const Point tip = whole.back();
  if (drawing.splines) {
    svg.spline(without_arrow(whole, along), "flow", width);
  } else {  // it arrives vertically
    std::vector<Point> points = whole;
    points.back().y -= kArrow;
    svg.curve(points, "flow", width);
  }
  const double half = width / 2 + 3;
  const Point foot{tip.x - kArrow * along.x, tip.y - kArrow * along.y};
  svg.polygon(
      {tip, {foot.x - half * along.y, foot.y + half * along.x}, {foot.x + half * along.y, foot.y - half * along.x}},
      "arrow");
}

void draw_edges(Svg& svg, const Flow& flow, const LayeredDrawing& drawing) {
  double most = 1;
  for (const FlowEdge& edge : flow.edges) most = std::max(most, flow.tensors[edge.tensor].words);
  for (size_t k = 0; k < flow.edges.size(); ++k) {
    const FlowTensor& tensor = flow.tensors[flow.edges[k].tensor];
    svg.open("tensor", flow.edges[k].tensor, described(tensor));
    draw_edge(svg, drawing, k, 0.8 + 7 * std::sqrt(tensor.words / most));
    svg.close();
  }
}

void draw_box(Svg& svg, Point corner, const LayeredNode& box, const Flow& flow, size_t k) {
  const FlowNode& node = flow.nodes[k];
  const bool leaf = node.piece == nullptr;
  svg.open("box", k, tip_of(flow, node));
  svg.rectangle(corner, box.width, box.height, leaf ? "leaf" : concat("node ", colour_of(*node.piece)), "", 4);
  double y = corner.y;
  for (const std::string& line : lines_of(flow, node))
    svg.text({corner.x + box.width / 2, y += kLine}, line, leaf ? "label" : "label on-node", "middle");
  svg.close();
}

std::string draw(const Flow& flow, const std::string& label, GraphLayout& layout) {
  std::vector<LayeredNode> boxes;
  for (const FlowNode& node : flow.nodes) {
    const std::vector<std::string> lines = lines_of(flow, node);
    double width = 0;
    for (const std::string& line : lines) width = std::max(width, text_width(line, kFont));
    boxes.push_back({width + 14, kLine * static_cast<double>(lines.size()) + 8});
  }
  std::vector<LayeredEdge> lines;
  for (const FlowEdge& edge : flow.edges) lines.push_back({edge.from, edge.to});
  const LayeredDrawing drawing = layout.draw(boxes, lines);
  Svg svg(drawing.width, drawing.height, label);
  draw_edges(svg, flow, drawing);
  for (size_t k = 0; k < flow.nodes.size(); ++k) draw_box(svg, drawing.nodes[k], boxes[k], flow, k);
  return std::move(svg).finish();
}

std::vector<LegendItem> flow_legend() {
  std::vector<LegendItem> legend = class_legend(LegendItem::Shape::box);
  legend.push_back({LegendItem::Shape::box, "leaf", "tensor of the caller, or saved for the other pass"});
  legend.push_back({LegendItem::Shape::line, "flow", "tensor in memory: the thicker, the more words"});
  return legend;
}

}  // namespace

Picture dataflow_picture(const ReportArtefacts& artefacts, const StepMetrics& metrics, FlowOf source, Pass pass,
                         GraphLayout& layout) {
  const bool before = source == FlowOf::operators;
  const std::string pass_name = name_of(pass);
  const Flow flow = flow_of(artefacts, metrics, source, pass);
  Picture picture;
  picture.id = concat("dataflow_", pass_name, before ? "_before" : "_after");
  picture.caption = concat(before ? "Before: " : "After: ", pass_name, ", ",
                           before ? "every operator as its own kernel." : "the plan's launches.");
  picture.svg = draw(flow, concat("dataflow of ", pass_name, before ? " before fusion" : " after fusion"), layout);
  picture.folded = before || pass == Pass::backward;
  picture.legend = flow_legend();
  picture.tab = {before ? "before" : "after", pass_name, flow_details(artefacts, metrics, flow)};
  return picture;
}

}  // namespace millrace
