#include "report/html/violin.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "report/exploration_report.h"

namespace millrace {
namespace {

constexpr double kViolinLeft = 230;
constexpr double kViolinWidth = 900;
constexpr double kViolinRight = 90;  // room for the count of times beyond the axis
constexpr double kViolinRow = 64;
constexpr double kViolinTop = 34;
constexpr double kHalf = 15;  // half of a violin's greatest height
constexpr size_t kPlaces = 40;
constexpr double kMostTimes = 10;
constexpr double kMostTimesOfASide =
    30;  // limit for a side whose fastest is this slow, for example without tensor cores
constexpr size_t kReasonLength = 94;
constexpr size_t kRowNameLength = 31;

struct Axis {
  double most = 1.1;
  double at(double times) const {
    return kViolinLeft +
           (kViolinWidth - kViolinLeft - kViolinRight) * std::log(std::clamp(times, 1.0, most)) / std::log(most);
  }
};

double fastest_of(const Violin& violin) {
  double best = violin.selected > 0 ? violin.selected : 1e300;
  for (const ViolinSide& side : violin.sides) {
    for (const double seconds : side.seconds) best = std::min(best, seconds);
  }
  return best;
}

Axis axis_of(const std::vector<Violin>& violins) {
  Axis axis;
  double most = kMostTimes;
  for (const Violin& violin : violins) {
    const double fastest = fastest_of(violin);
    for (const ViolinSide& side : violin.sides) {
      if (side.seconds.empty()) continue;
      const auto [low, high] = std::minmax_element(side.seconds.begin(), side.seconds.end());
      axis.most = std::max(axis.most, *high / fastest);
      most = std::max(most, std::min(1.1 * *low / fastest, kMostTimesOfASide));
    }
  }
  axis.most = std::min(axis.most * 1.1, most);
  return axis;
}

void draw_axis(Svg& svg, const Axis& axis, double bottom) {
  double last = 0;
  for (const double times : {1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0}) {
    const double x = axis.at(times);
    if (times > axis.most || x < last + 44) continue;
    last = x;
    svg.line({x, kViolinTop - 8}, {x, bottom}, "grid");
    svg.text({x, kViolinTop - 14}, concat(times, "×"), "label", "middle");
  }
  svg.text({kViolinWidth - 4, kViolinTop - 14}, "slower →", "label weak", "end");
}

void draw_diamond(Svg& svg, Point at, const std::string& tip) {
  svg.polygon({{at.x, at.y - 6}, {at.x + 6, at.y}, {at.x, at.y + 6}, {at.x - 6, at.y}}, "selected", tip);
}

// `up` and `down`: how much of the density to draw above and below the row's middle.
void draw_side(Svg& svg, const Axis& axis, const ViolinSide& side, double fastest, double middle, bool up, bool down,
               const std::string& classes) {
  std::vector<double> logs;
  for (const double seconds : side.seconds) {
    if (seconds <= fastest * axis.most) logs.push_back(std::log(seconds / fastest));
  }
  const std::vector<double> density = logs.size() < kFewestOfAShape ? std::vector<double>() : density_of(logs, kPlaces);
  const std::string tip = concat(side.name, ": ", side.seconds.size(), " candidates");
  if (density.empty()) {
    for (const double log : logs)
      svg.circle({axis.at(std::exp(log)), middle + (up && !down   ? -5
                                                    : down && !up ? 5
                                                                  : 0)},
                 3.5, classes, concat(side.name, ": ", shown_seconds(fastest * std::exp(log))));
    return;
  }
  const double low = *std::min_element(logs.begin(), logs.end());
  const double high = *std::max_element(logs.begin(), logs.end());
  std::vector<Point> outline;
  const auto edge = [&](bool drawn, double sign, size_t k) {
    const double log = low + (high - low) * static_cast<double>(k) / static_cast<double>(kPlaces - 1);
    outline.push_back({axis.at(std::exp(log)), middle + (drawn ? sign * kHalf * density[k] : 0)});
  };
  for (size_t k = 0; k < kPlaces; ++k) edge(up, -1, k);
  for (size_t k = kPlaces; k-- > 0;) edge(down, 1, k);
  svg.polygon(outline, classes, tip);
}

// A name on one line, or on two; longer ones are shortened, and their tip has all of it.
void draw_name(Svg& svg, const std::string& name, double middle) {
  std::vector<std::string> lines = wrapped_lines(name, kRowNameLength);
  if (lines.size() > 2)
    lines = {lines[0],
             shortened(name.substr(lines[0].size() + (name[lines[0].size()] == ' ' ? 1 : 0)), kRowNameLength)};
  double y = middle - (lines.size() > 1 ? 14 : 2);
  for (const std::string& line : lines) {
    svg.text({6, y}, line, "label strong");
    y += 13;
  }
}

void draw_row(Svg& svg, const Axis& axis, const Violin& violin, double top) {
  const double fastest = fastest_of(violin);
  const double middle = top + kHalf + 6;
  size_t count = 0;
  for (const ViolinSide& side : violin.sides) count += side.seconds.size();
  draw_name(svg, violin.name, middle);
  svg.text({6, middle + 13},
           concat(count, count == 1 ? " candidate, " : " candidates, ", shown_seconds(fastest),
                  count < kFewestOfAShape ? ", too few" : ""),
           "label weak");
  const bool both = violin.sides.size() == 1;
  std::ptrdiff_t beyond = 0;
  for (size_t k = 0; k < violin.sides.size(); ++k) {
    draw_side(svg, axis, violin.sides[k], fastest, middle, both || k % 2 == 0, both || k % 2 == 1,
              violin.sides[k].classes);
    beyond += std::count_if(violin.sides[k].seconds.begin(), violin.sides[k].seconds.end(),
                            [&](double seconds) { return seconds > fastest * axis.most; });
  }
  if (beyond > 0) svg.text({kViolinWidth - 4, middle + 4}, concat(beyond, " slower →"), "label weak", "end");
  svg.line({axis.at(1), middle - kHalf}, {axis.at(1), middle + kHalf}, "fastest", 2,
           concat("fastest: ", shown_seconds(fastest), "\n", violin.fastest_candidate));
  if (violin.heuristic > 0 && violin.heuristic <= fastest * axis.most)
    svg.circle({axis.at(violin.heuristic / fastest), middle}, 5, "heuristic",
               concat("the library's own choice: ", shown_seconds(violin.heuristic)));
  if (violin.selected <= 0) return;
  draw_diamond(svg, {axis.at(violin.selected / fastest), middle},
               concat("selected: ", shown_seconds(violin.selected), "\n", violin.selected_candidate));
  if (!violin.reason.empty())
    svg.text({kViolinLeft, middle + kHalf + 14}, shortened(violin.reason, kReasonLength), "label weak");
}

}  // namespace

std::vector<double> density_of(const std::vector<double>& samples, size_t count) {
  if (samples.size() < 4 || count < 2) return {};
  const auto n = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double variance = 0;
  for (const double sample : samples) variance += (sample - mean) * (sample - mean) / n;
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  if (!(*high > *low)) return {};
  const double width = std::max(1.06 * std::sqrt(variance) * std::pow(n, -0.2), (*high - *low) / 50);
  std::vector<double> density;
  for (size_t k = 0; k < count; ++k) {
    const double at = *low + (*high - *low) * static_cast<double>(k) / static_cast<double>(count - 1);
    double sum = 0;
    for (const double sample : samples) sum += std::exp(-0.5 * std::pow((at - sample) / width, 2));
    density.push_back(sum);
  }
  const double most = *std::max_element(density.begin(), density.end());
  for (double& value : density) value /= most;
  return density;
}

std::string draw_violins(const std::vector<Violin>& violins, const std::string& label) {
  const Axis axis = axis_of(violins);
  const double height = kViolinTop + kViolinRow * static_cast<double>(violins.size()) + 6;
  Svg svg(kViolinWidth, height, label);
  draw_axis(svg, axis, height - 6);
  for (size_t k = 0; k < violins.size(); ++k)
    draw_row(svg, axis, violins[k], kViolinTop + kViolinRow * static_cast<double>(k));
  return std::move(svg).finish();
}

}  // namespace millrace
