#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kWidth = 900;
constexpr double kHeight = 460;
constexpr double kLeft = 84;
constexpr double kRight = 880;
// Two panels, one above the other: seconds of a step, and candidates.
constexpr double kStepTop = 34;
constexpr double kStepBottom = 250;
constexpr double kTriedTop = 310;
constexpr double kTriedBottom = 410;
constexpr int kTicks = 5;

// A panel: a quantity over time, from zero.
struct Panel {
  double seconds;  // at the right
  double most;     // at the top
  double top;
  double bottom;

  Point at(double second, double value) const {
    return {kLeft + (kRight - kLeft) * second / seconds, bottom - (bottom - top) * std::min(1.0, value / most)};
  }
};

template <class Text>
void draw_axes(Svg& svg, const Panel& panel, Text text) {
  const double tick = tick_of(panel.most, kTicks);
  for (int k = 0; tick * k <= panel.most * 1.001; ++k) {
    const Point foot = panel.at(0, tick * k);
    svg.line(foot, {kRight, foot.y}, "grid");
    svg.text({kLeft - 6, foot.y + 4}, text(tick * k), "label", "end");
  }
}

void draw_seconds(Svg& svg, const Panel& panel) {
  const double tick = tick_of(panel.seconds, kTicks);
  for (int k = 0; tick * k <= panel.seconds * 1.001; ++k)
    svg.text({panel.at(tick * k, 0).x, panel.bottom + 18}, concat(tick * k), "label", "middle");
  svg.text({(kLeft + kRight) / 2, panel.bottom + 38}, "seconds since the exploration began", "label", "middle");
}

// A staircase: a value holds until the next point.
void draw_curve(Svg& svg, const Panel& panel, const std::vector<ExplorationPoint>& points,
                double ExplorationPoint::*value, const std::string& name, const std::string& classes) {
  for (size_t k = 0; k + 1 < points.size(); ++k) {
    if (points[k].*value <= 0) continue;
    const Point from = panel.at(points[k].seconds, points[k].*value);
    const Point to = panel.at(points[k + 1].seconds, points[k].*value);
    const std::string tip = concat(name, " after ", fixed(points[k].seconds, 1), " s");
    svg.line(from, to, classes, 2, tip);
    svg.line(to, panel.at(points[k + 1].seconds, points[k + 1].*value), classes, 2, tip);
  }
  const ExplorationPoint& last = points.back();
  if (last.*value > 0) svg.circle(panel.at(last.seconds, last.*value), 3, classes, concat(name, " at the end"));
}

// The highest step that is drawn: the first ones may be far above the rest.
double highest_step(const std::vector<ExplorationPoint>& points) {
  constexpr double kMostOverLast = 3;
  double most = 0;
  for (const ExplorationPoint& point : points) most = std::max({most, point.step, point.bound});
  const double last = std::max(points.back().step, points.back().bound);
  return last > 0 ? std::min(most, kMostOverLast * last) : most;
}

}  // namespace

Picture search_picture(const std::vector<ExplorationPoint>& points) {
  Svg svg(kWidth, kHeight, "the search over time");
  const double seconds = points.empty() ? 0 : points.back().seconds;
  const double step = points.empty() ? 0 : highest_step(points);
  if (seconds > 0 && step > 0) {
    const Panel steps{seconds, 1.1 * step, kStepTop, kStepBottom};
    const Panel tried{seconds, 1.1 * std::max(1.0, points.back().tried), kTriedTop, kTriedBottom};
    draw_axes(svg, steps, round_seconds);
    draw_axes(svg, tried, short_count);
    draw_seconds(svg, tried);
    draw_curve(svg, steps, points, &ExplorationPoint::bound, "lower bound", "series bound");
    draw_curve(svg, steps, points, &ExplorationPoint::step, "best step", "series step");
    draw_curve(svg, tried, points, &ExplorationPoint::tried, "candidates tried", "series tried");
    svg.text({kLeft, kStepTop - 14}, "time of a step", "label");
    svg.text({kLeft, kTriedTop - 14}, "candidates tried", "label");
  }
  return {"search",
          "Above: a step of the best selection so far, and its lower bound, every partition with its fastest candidate "
          "so far. The bound rises at first, since it counts only partitions that have a measured candidate, and then "
          "falls "
          "as faster ones are found. Below: the candidates tried in this run.",
          std::move(svg).finish(),
          false,
          {{LegendItem::Shape::line, "series step", "best step so far"},
           {LegendItem::Shape::line, "series bound", "lower bound"},
           {LegendItem::Shape::line, "series tried", "candidates tried"}}};
}

}  // namespace millrace
