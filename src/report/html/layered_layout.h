// Lays out an acyclic graph in layers, every edge downwards. No two nodes overlap. Test:
// tests/report/layered_layout_test.cpp
#pragma once

#include <cstddef>
#include <vector>

#include "report/html/svg.h"

namespace millrace {

struct LayeredNode {
  double width = 0;
  double height = 0;
};

struct LayeredEdge {
  size_t from = 0;
  size_t to = 0;
};

struct LayeredDrawing {
  std::vector<Point> nodes;               // their upper left corners
  std::vector<std::vector<Point>> edges;  // from the lower side of one node to the upper side of another
  // Whether edges are cubic splines: a start, then three points for each spline, of which the third is on the line.
  // Otherwise all points are on it.
  bool splines = false;
  double width = 0;
  double height = 0;
};

LayeredDrawing draw_layered(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges);

}  // namespace millrace
