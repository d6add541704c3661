// Predicted against measured times as points. Test: tests/report/scatter_test.cpp
#pragma once

#include <string>
#include <vector>

namespace millrace {

struct ScatterPoint {
  double predicted = 0;
  double measured = 0;
  std::string classes;  // of the style
  std::string tip;
  std::string label = {};  // beside the point, where there is room
};

struct ScatterTitles {
  std::string across;
  std::string up;
  std::string picture;  // for screen readers
};

// Both axes are logarithmic, with the same range, so that points on the diagonal are predicted exactly. Later points
// are on top; of points that would cover each other, only the last is drawn.
std::string draw_scatter(const std::vector<ScatterPoint>& points, const ScatterTitles& titles);

}  // namespace millrace
