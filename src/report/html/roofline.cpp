#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/label_places.h"
#include "report/html/legend.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kRooflineWidth = 900;
constexpr double kRooflineHeight = 420;
constexpr double kRooflineLeft = 70;
constexpr double kRooflineBottom = 370;
constexpr double kRooflineTop = 34;
constexpr double kRooflineRight = 880;
constexpr size_t kPointLetters = 26;

struct Span {
  double low = 1e300;
  double high = 0;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void round() {
    low = std::pow(10, std::floor(std::log10(low) + 1e-9));
    high = std::pow(10, std::ceil(std::log10(high) + 1e-9));
    if (high <= low) high = low * 10;
  }
  double part(double value) const { return std::log(value / low) / std::log(high / low); }
};

struct Axes {
  Span x;
  Span y;
  Point at(double intensity, double rate) const {
    return {kRooflineLeft + (kRooflineRight - kRooflineLeft) * x.part(intensity),
            kRooflineBottom - (kRooflineBottom - kRooflineTop) * y.part(rate)};
  }
};

bool is_drawn(const Piece& piece) { return piece.flop > 0 && piece.seconds > 0 && piece.bytes > 0; }
double intensity(const Piece& piece) { return static_cast<double>(piece.flop) / piece.bytes; }
double rate(const Piece& piece) { return static_cast<double>(piece.flop) / piece.seconds; }

void draw_axes(Svg& svg, const Axes& axes) {
  for (double x = axes.x.low; x <= axes.x.high * 1.001; x *= 10) {
    const Point foot = axes.at(x, axes.y.low);
    svg.line(foot, {foot.x, kRooflineTop}, "grid");
    svg.text({foot.x, kRooflineBottom + 16}, concat(x), "label", "middle");
  }
  for (double y = axes.y.low; y <= axes.y.high * 1.001; y *= 10) {
    const Point foot = axes.at(axes.x.low, y);
    svg.line(foot, {kRooflineRight, foot.y}, "grid");
    svg.text({kRooflineLeft - 6, foot.y + 4}, short_count(y), "label", "end");
  }
  svg.text({(kRooflineLeft + kRooflineRight) / 2, kRooflineBottom + 36}, "flop per byte moved", "label", "middle");
  svg.text({6, 14}, "flop/s", "label");
}

// Its slope, which memory limits, and its flat part, which arithmetic limits.
struct Roof {
  Point start;
  Point ridge;
  Point end;
};

Roof roof_of(const Axes& axes, const Peaks& peaks) {
  const double ridge = peaks.flop_per_second / peaks.bytes_per_second;
  const double start = std::max(axes.x.low, axes.y.low / peaks.bytes_per_second);
  return {axes.at(start, start * peaks.bytes_per_second), axes.at(ridge, peaks.flop_per_second),
          axes.at(axes.x.high, peaks.flop_per_second)};
}

Point place_of(const Axes& axes, const Piece& piece) { return axes.at(intensity(piece), rate(piece)); }

// Lines from every operator before to the launch that carries it out.
void draw_joins(Svg& svg, const Axes& axes, const StepMetrics& metrics) {
  for (const Piece& launch : metrics.after) {
    if (!is_drawn(launch)) continue;
    for (const OperatorId op : launch.operators) {
      const Piece& alone = metrics.operators[op.at()];
      if (!alone.added && is_drawn(alone)) svg.line(place_of(axes, alone), place_of(axes, launch), "joined");
    }
  }
}

// The slowest launches first: they have the best chance of room.
void draw_labels(Svg& svg, const Axes& axes, const StepMetrics& metrics) {
  LabelPlaces places({kRooflineLeft, kRooflineTop}, {kRooflineRight, kRooflineBottom});
  for (const Piece& piece : metrics.after) {
    if (is_drawn(piece)) places.occupy(place_of(axes, piece), 6);
  }
  const Roof roof = roof_of(axes, metrics.peaks);
  places.occupy_line(roof.start, roof.ridge);
  places.occupy_line(roof.ridge, roof.end);
  for (const Piece* piece : slowest_first(metrics.after)) {
    if (!is_drawn(*piece)) continue;
    const std::string label = shortened(piece->name, kPointLetters);
    if (const std::optional<LabelPlace> place = places.place(place_of(axes, *piece), label))
      svg.text(place->at, label, "label on-marks", place->anchor);
  }
}

void draw_pieces(Svg& svg, const Axes& axes, const std::vector<Piece>& pieces, bool after) {
  for (const Piece& piece : pieces) {
    if (!is_drawn(piece)) continue;
    svg.circle(axes.at(intensity(piece), rate(piece)), after ? 6 : 4,
               concat(after ? "node " : "hollow ", colour_of(piece)),
               concat(after ? "after: " : "before: ", piece.name, "\n", shown_seconds(piece.seconds), ", ",
                      short_count(rate(piece)), "flop/s, ", fixed(intensity(piece), 2), " flop per byte"));
  }
}

}  // namespace

Picture roofline_picture(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Axes axes;
  for (const std::vector<Piece>* pieces : {&metrics.before, &metrics.after}) {
    for (const Piece& piece : *pieces) {
      if (!is_drawn(piece)) continue;
      axes.x.add(intensity(piece));
      axes.y.add(rate(piece));
    }
  }
  Svg svg(kRooflineWidth, kRooflineHeight, "roofline");
  if (axes.x.high > 0 && metrics.peaks.bytes_per_second > 0) {
    const double ridge = metrics.peaks.flop_per_second / metrics.peaks.bytes_per_second;
    axes.x.add(ridge);
    axes.y.add(metrics.peaks.flop_per_second);
    axes.x.round();
    axes.y.round();
    draw_axes(svg, axes);
    const Roof roof = roof_of(axes, metrics.peaks);
    svg.line(roof.start, roof.ridge, "roof", 2,
             concat(short_bytes(metrics.peaks.bytes_per_second), "/s: ", metrics.peaks.bytes_of));
    svg.line(roof.ridge, roof.end, "roof", 2,
             concat(short_count(metrics.peaks.flop_per_second), "flop/s: ", metrics.peaks.flop_of));
    draw_joins(svg, axes, metrics);
    draw_pieces(svg, axes, metrics.before, false);
    draw_pieces(svg, axes, metrics.after, true);
    draw_labels(svg, axes, metrics);
  }
  Picture picture{"roofline",
                  concat("The slowest launches have names; pointing, or the arrow keys, name all. The roof is the "
                         "fastest rate measured here, not a "
                         "data sheet's: ",
                         short_count(metrics.peaks.flop_per_second), "flop/s by ", metrics.peaks.flop_of, " and ",
                         short_bytes(metrics.peaks.bytes_per_second), "/s by ", metrics.peaks.bytes_of,
                         artefacts.from_cache ? ", from the cache, where all of this program's tensors fit" : "", "."),
                  std::move(svg).finish(), false};
  picture.legend = class_legend(LegendItem::Shape::disc);
  picture.legend.pop_back();  // conversions compute nothing
  picture.legend.push_back({LegendItem::Shape::disc, "hollow contraction", "ring: an operator before"});
  picture.legend.push_back({LegendItem::Shape::line, "joined", "to the launch that carries it out"});
  picture.legend.push_back({LegendItem::Shape::line, "roof", "roof: the fastest measured here"});
  return picture;
}

}  // namespace millrace
