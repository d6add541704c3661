#include "report/html/graph_layout.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "report/html/graphviz_layout.h"

namespace millrace {
namespace {

constexpr double kLeastSeconds = 0.05;

}  // namespace

LayeredDrawing GraphLayout::draw(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges) {
  if (reason_.empty()) {
    const double begin = now();
    Result<LayeredDrawing> drawing = draw_by_graphviz(nodes, edges, graphviz_seconds_);
    graphviz_seconds_ = std::max(kLeastSeconds, graphviz_seconds_ - (now() - begin));
    if (drawing) {
      ++by_graphviz_;
      return std::move(*drawing);
    }
    reason_ = drawing.error().diagnostics.front().message;
  }
  ++by_us_;
  return draw_layered(nodes, edges);
}

std::string GraphLayout::note() const {
  if (by_us_ == 0) return "Graphviz laid out the boxes and lines.";
  const std::string us = concat("Millrace laid out the boxes and lines itself: ", reason_, ".");
  return by_graphviz_ == 0 ? us : concat(us, " The first ", by_graphviz_, " drawings are by Graphviz.");
}

}  // namespace millrace
