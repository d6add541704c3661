// Lays out graphs with Graphviz, or with our own layered layout if Graphviz fails. The fallback exists because reports
// are also made where nothing can be installed, as on GPU machines without a network. All drawings share Graphviz's
// time, and once it has failed it is not tried again. Test: tests/report/graphviz_layout_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/layered_layout.h"

namespace millrace {

class GraphLayout {
 public:
  LayeredDrawing draw(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges);

  // Which layout was used, and why not Graphviz.
  std::string note() const;

 private:
  double graphviz_seconds_ = 2;  // that Graphviz has left: a report must take less than five
  size_t by_graphviz_ = 0;
  size_t by_us_ = 0;
  std::string reason_;
};

}  // namespace millrace
