// Lays out graphs by Graphviz where it is there, else by our own layers. What it could not do once it is not asked
// again, so that a dot that hangs costs its time limit once. Test: tests/report/graphviz_layout_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/layered_layout.h"

namespace millrace {

class GraphLayout {
 public:
  LayeredDrawing draw(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges);

  // Who laid out what was drawn, and why not Graphviz.
  std::string note() const;

 private:
  size_t by_graphviz_ = 0;
  size_t by_us_ = 0;
  std::string reason_;
};

}  // namespace millrace
