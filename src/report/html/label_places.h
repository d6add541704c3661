// Finds room for labels beside points: no label covers another label, a point or a line. Test:
// tests/report/scatter_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/html/svg.h"

namespace millrace {

struct LabelPlace {
  Point at;
  std::string anchor;
};

class LabelPlaces {
 public:
  // The picture's section in which labels may be.
  LabelPlaces(Point low, Point high) : low_(low), high_(high) {}

  void occupy(Point centre, double radius) {
    taken_.push_back({centre.x - radius, centre.y - radius, centre.x + radius, centre.y + radius});
  }
  void occupy_line(Point from, Point to);
  // Right of the point, left of it, above or below it, below to the right or above to the left (beside a line that
  // rises); none if all are taken. A place that is returned is taken.
  std::optional<LabelPlace> place(Point point, const std::string& label);

 private:
  struct Box {
    double left = 0;
    double top = 0;
    double right = 0;
    double bottom = 0;
  };
  bool is_free(const Box& box) const;

  Point low_;
  Point high_;
  std::vector<Box> taken_;
};

}  // namespace millrace
