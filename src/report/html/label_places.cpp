#include "report/html/label_places.h"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

constexpr double kLabelHeight = 12;
constexpr double kLabelSize = 11;
constexpr double kAside = 9;   // between a point and its label
constexpr double kAcross = 6;  // the same for a label below or above it and to the side

}  // namespace

void LabelPlaces::occupy_line(Point from, Point to) {
  constexpr int kPoints = 300;
  for (int k = 0; k <= kPoints; ++k) {
    const double part = static_cast<double>(k) / kPoints;
    occupy({from.x + (to.x - from.x) * part, from.y + (to.y - from.y) * part}, 1);
  }
}

bool LabelPlaces::is_free(const Box& box) const {
  if (box.left < low_.x || box.top < low_.y || box.right > high_.x || box.bottom > high_.y) return false;
  return std::none_of(taken_.begin(), taken_.end(), [&](const Box& other) {
    return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
  });
}

std::optional<LabelPlace> LabelPlaces::place(Point point, const std::string& label) {
  const double width = text_width(label, kLabelSize);
  const std::array<LabelPlace, 6> places = {{{{point.x + kAside, point.y + 4}, "start"},
                                             {{point.x - kAside, point.y + 4}, "end"},
                                             {{point.x, point.y - kAside}, "middle"},
                                             {{point.x, point.y + kAside + 10}, "middle"},
                                             {{point.x + kAcross, point.y + kAside + 8}, "start"},
                                             {{point.x - kAcross, point.y - kAside + 1}, "end"}}};
  for (const LabelPlace& place : places) {
    const double left = place.at.x - (place.anchor == "start" ? 0 : place.anchor == "end" ? width : width / 2);
    const Box box{left, place.at.y - kLabelHeight + 2, left + width, place.at.y + 3};
    if (!is_free(box)) continue;
    taken_.push_back(box);
    return place;
  }
  return std::nullopt;
}

}  // namespace millrace
