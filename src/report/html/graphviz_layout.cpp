#include "report/html/graphviz_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/process.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr double kPointsPerInch = 72;  // our pixel is one Graphviz point; Graphviz writes inches
constexpr double kGraphvizMargin = 8;
constexpr double kLargestDrawing = 100'000;
constexpr size_t kMostEdgePoints = 100'000;  // of an edge
constexpr uint64_t kGraphvizMemory = uint64_t{4} << 30;

std::string dot_text(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges) {
  std::string text =
      "digraph {\n  graph [nodesep=0.2, ranksep=0.45]\n"
      "  node [shape=box, fixedsize=true, label=\"\"]\n  edge [arrowhead=none]\n";
  for (size_t k = 0; k < nodes.size(); ++k)
    text += concat("  ", k, " [width=", fixed(nodes[k].width / kPointsPerInch, 4),
                   ", height=", fixed(nodes[k].height / kPointsPerInch, 4), "]\n");
  for (const LayeredEdge& edge : edges) text += concat("  ", edge.from, " -> ", edge.to, "\n");
  return text + "}\n";
}

// The words of a line, parsed as numbers where numbers are expected.
class PlainWords {
 public:
  explicit PlainWords(const std::string& line) {
    for (std::string& word : split(line, ' ')) {
      if (!word.empty()) words_.push_back(std::move(word));
    }
  }

  std::string word() { return next_ < words_.size() ? words_[next_++] : ""; }

  std::optional<size_t> count(size_t below) {
    size_t value = 0;
    return read(value) && value < below ? std::optional(value) : std::nullopt;
  }

  std::optional<double> inches() {
    double value = 0;
    if (!read(value) || !std::isfinite(value) || std::abs(value) > kLargestDrawing) return std::nullopt;
    return value * kPointsPerInch;
  }

  std::optional<Point> point(double height) {
    const std::optional<double> x = inches();
    const std::optional<double> y = inches();
    if (!x || !y) return std::nullopt;
    return Point{*x + kGraphvizMargin, height - *y + kGraphvizMargin};  // Graphviz's y axis points upwards
  }

 private:
  template <class Number>
  bool read(Number& value) {
    const std::string text = word();
    const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
    return end.ec == std::errc() && end.ptr == text.data() + text.size() && !text.empty();
  }

  std::vector<std::string> words_;
  size_t next_ = 0;
};

class PlainParser {
 public:
  PlainParser(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges)
      : nodes_(nodes), placed_(nodes.size(), false) {
    drawing_.splines = true;
    drawing_.nodes.resize(nodes.size());
    drawing_.edges.resize(edges.size());
    for (size_t k = 0; k < edges.size(); ++k) open_[{edges[k].from, edges[k].to}].push_back(k);
  }

  // False: this does not describe the given graph.
  bool parse(std::string_view text) {
    for (const std::string& line : split(text, '\n')) {
      PlainWords words(line);
      const std::string what = words.word();
      if (what == "stop") return is_whole();
      if (what == "graph" ? !graph(words) : what == "node" ? !node(words) : what == "edge" ? !edge(words) : true)
        return false;
    }
    return false;
  }

  LayeredDrawing take() && { return std::move(drawing_); }

 private:
  bool graph(PlainWords& words) {
    const std::optional<double> scale = words.inches();
    const std::optional<double> width = words.inches();
    const std::optional<double> height = words.inches();
    if (!scale || !width || !height || *scale != kPointsPerInch || *width < 0 || *height < 0) return false;
    drawing_.width = *width + 2 * kGraphvizMargin;
    drawing_.height = *height + 2 * kGraphvizMargin;
    return drawing_.width <= kLargestDrawing && drawing_.height <= kLargestDrawing;
  }

  bool node(PlainWords& words) {
    const std::optional<size_t> k = words.count(nodes_.size());
    const std::optional<Point> centre = words.point(drawing_.height - 2 * kGraphvizMargin);
    if (!k || !centre || placed_[*k]) return false;
    placed_[*k] = true;
    const LayeredNode& size = nodes_[*k];
    drawing_.nodes[*k] = {centre->x - size.width / 2, centre->y - size.height / 2};
    return inside(drawing_.nodes[*k]) && inside({centre->x + size.width / 2, centre->y + size.height / 2});
  }

  // Lines between the same two nodes are interchangeable: the first edge gets the first line.
  bool edge(PlainWords& words) {
    const std::optional<size_t> from = words.count(nodes_.size());
    const std::optional<size_t> to = words.count(nodes_.size());
    const std::optional<size_t> count = words.count(kMostEdgePoints);
    if (!from || !to || !count || *count < 4 || *count % 3 != 1) return false;
    const auto open = open_.find({*from, *to});
    if (open == open_.end() || open->second.empty()) return false;
    std::vector<Point>& points = drawing_.edges[open->second.front()];
    open->second.erase(open->second.begin());
    for (size_t k = 0; k < *count; ++k) {
      const std::optional<Point> point = words.point(drawing_.height - 2 * kGraphvizMargin);
      if (!point) return false;
      points.push_back(*point);
    }
    return true;
  }

  bool inside(Point point) const {
    return point.x >= 0 && point.y >= 0 && point.x <= drawing_.width && point.y <= drawing_.height;
  }

  bool is_whole() const {
    return std::all_of(placed_.begin(), placed_.end(), [](bool placed) { return placed; }) &&
           std::all_of(open_.begin(), open_.end(), [](const auto& between) { return between.second.empty(); });
  }

  const std::vector<LayeredNode>& nodes_;
  std::vector<bool> placed_;
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> open_;  // edges between two nodes that have no line yet
  LayeredDrawing drawing_;
};

}  // namespace

Result<LayeredDrawing> parse_plain(std::string_view text, const std::vector<LayeredNode>& nodes,
                                   const std::vector<LayeredEdge>& edges) {
  PlainParser parser(nodes, edges);
  if (!parser.parse(text))
    return Error::make(ErrorKind::failed, "the output of Graphviz's dot is not a drawing of the graph");
  return std::move(parser).take();
}

Result<LayeredDrawing> draw_by_graphviz(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges,
                                        double seconds) {
  if (!find_program("dot"))
    return Error::make(ErrorKind::unavailable, "Graphviz's dot is not installed", "install the package graphviz");
  ProcessOptions options;
  options.input = dot_text(nodes, edges);
  options.timeout_seconds = seconds;
  options.memory_limit = kGraphvizMemory;
  options.environment["LC_ALL"] = "C";
  const Result<Finished> finished = run_process({"dot", "-Tplain"}, options);
  if (!finished) return finished.error();
  if (finished->timed_out) return Error::make(ErrorKind::failed, "Graphviz's dot took too long");
  if (finished->exit_code != 0) return Error::make(ErrorKind::failed, "Graphviz's dot failed");
  return parse_plain(finished->output, nodes, edges);
}

}  // namespace millrace
