#include "report/html/scatter.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "report/html/label_places.h"
#include "report/html/svg.h"
#include "report/units.h"

namespace millrace {
namespace {

constexpr double kScatterWidth = 900;
constexpr double kScatterHeight = 470;
constexpr double kScatterLeft = 84;
constexpr double kScatterRight = 880;
constexpr double kScatterTop = 30;
constexpr double kScatterBottom = 420;
constexpr double kCell = 4;  // pixels: points closer than this cover each other

// Both axes, as powers of ten.
struct Decades {
  double low;
  double high;

  Point at(double predicted, double measured) const {
    const auto part = [&](double value) { return (std::log10(value) - low) / (high - low); };
    return {kScatterLeft + (kScatterRight - kScatterLeft) * part(predicted),
            kScatterBottom - (kScatterBottom - kScatterTop) * part(measured)};
  }
};

Decades decades_of(const std::vector<ScatterPoint>& points) {
  double low = 1e300;
  double high = 0;
  for (const ScatterPoint& point : points) {
    low = std::min({low, point.predicted, point.measured});
    high = std::max({high, point.predicted, point.measured});
  }
  const Decades decades{std::floor(std::log10(low)), std::ceil(std::log10(high))};
  return decades.high > decades.low ? decades : Decades{decades.low, decades.low + 1};
}

void draw_axes(Svg& svg, const Decades& decades, const ScatterTitles& titles) {
  for (double power = decades.low; power <= decades.high + 0.5; ++power) {
    const double seconds = std::pow(10, power);
    const Point foot = decades.at(seconds, std::pow(10, decades.low));
    const Point side = decades.at(std::pow(10, decades.low), seconds);
    svg.line(foot, {foot.x, kScatterTop}, "grid");
    svg.line(side, {kScatterRight, side.y}, "grid");
    const bool last = power > decades.high - 0.5;
    svg.text({foot.x, kScatterBottom + 16}, round_seconds(seconds), "label", last ? "end" : "middle");
    svg.text({kScatterLeft - 6, side.y + 4}, round_seconds(seconds), "label", "end");
  }
  svg.text({(kScatterLeft + kScatterRight) / 2, kScatterBottom + 38}, titles.across, "label", "middle");
  svg.text({6, 14}, titles.up, "label");
  svg.line({kScatterLeft, kScatterBottom}, {kScatterRight, kScatterTop}, "roof", 1.5);
}

// The last point of every cell, in order.
std::vector<const ScatterPoint*> visible(const std::vector<ScatterPoint>& points, const Decades& decades) {
  std::set<std::pair<int, int>> taken;
  std::vector<const ScatterPoint*> kept;
  for (size_t k = points.size(); k-- > 0;) {
    const Point at = decades.at(points[k].predicted, points[k].measured);
    if (taken.emplace(static_cast<int>(at.x / kCell), static_cast<int>(at.y / kCell)).second)
      kept.push_back(&points[k]);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

std::string draw_scatter(const std::vector<ScatterPoint>& points, const ScatterTitles& titles) {
  Svg svg(kScatterWidth, kScatterHeight, titles.picture);
  if (points.empty()) return std::move(svg).finish();
  const Decades decades = decades_of(points);
  draw_axes(svg, decades, titles);
  LabelPlaces places({kScatterLeft, kScatterTop}, {kScatterRight, kScatterBottom});
  places.occupy_line({kScatterLeft, kScatterBottom}, {kScatterRight, kScatterTop});
  const std::vector<const ScatterPoint*> drawn = visible(points, decades);
  for (const ScatterPoint* point : drawn) {
    const Point at = decades.at(point->predicted, point->measured);
    svg.circle(at, point->label.empty() ? 3 : 5, point->classes, point->tip);
    places.occupy(at, point->label.empty() ? 0 : 6);
  }
  for (const ScatterPoint* point : drawn) {
    if (point->label.empty()) continue;
    const Point at = decades.at(point->predicted, point->measured);
    if (const std::optional<LabelPlace> place = places.place(at, point->label))
      svg.text(place->at, point->label, "label on-marks", place->anchor);
  }
  return std::move(svg).finish();
}

}  // namespace millrace
