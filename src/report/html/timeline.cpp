#include <algorithm>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/legend.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kTimelineWidth = 900;
constexpr double kTimelineLeft = 64;
constexpr double kBar = 30;
constexpr double kLabelFont = 11;  // of labels

double total_of(const std::vector<Piece>& pieces, Pass pass) {
  double total = 0;
  for (const Piece& piece : pieces) total += piece.pass == pass ? piece.seconds : 0;
  return total;
}

// As text, with the number of unmeasured ones.
std::string told_total(const std::vector<Piece>& pieces, Pass pass) {
  if (total_of(pieces, pass) <= 0) return "not measured";
  const auto unknown = std::count_if(pieces.begin(), pieces.end(),
                                     [&](const Piece& piece) { return piece.pass == pass && piece.seconds <= 0; });
  return concat(shown_seconds(total_of(pieces, pass)), unknown > 0 ? concat(" + ", unknown, " not measured") : "");
}

// A bar of one pass: each launch as wide as its time, with its name or, where there is little room, its number.
void draw_pieces(Svg& svg, const std::vector<Piece>& pieces, Pass pass, double top, double scale) {
  double x = kTimelineLeft;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Piece& piece = pieces[k];
    if (piece.pass != pass) continue;
    const double width = piece.seconds * scale;
    svg.rectangle({x, top}, width, kBar, concat("node ", colour_of(piece)),
                  concat(k + 1, ". ", piece.name, ": ", shown_seconds(piece.seconds)));
    const std::string number = concat(k + 1);
    const auto room = static_cast<size_t>(std::max(0.0, (width - 6) / 7));
    const std::string label = room >= 6 ? shortened(piece.name, room) : room >= number.size() ? number : "";
    if (!label.empty()) svg.text({x + width / 2, top + kBar / 2 + 4}, label, "label on-node", "middle");
    x += width;
  }
}

// Ticks below all bars, labelled in seconds.
void draw_ticks(Svg& svg, double most, double scale, double bottom) {
  constexpr int kTimeTicks = 8;
  if (most <= 0) return;
  const double tick = tick_of(most, kTimeTicks);
  svg.line({kTimelineLeft, bottom}, {kTimelineLeft + most * scale, bottom}, "axis");
  for (int k = 0; tick * k <= most * 1.001; ++k) {
    const double x = kTimelineLeft + tick * k * scale;
    svg.line({x, bottom}, {x, bottom + 5}, "axis");
    svg.text({x, bottom + 18}, round_seconds(tick * k), "label", "middle");
  }
  svg.text({6, bottom + 18}, "time", "label weak");
}

struct Bar {
  std::string name;
  const std::vector<Piece>& pieces;
};

std::string draw_bars(const std::vector<Bar>& bars) {
  double most = 0;
  double room = 0;
  for (const Bar& bar : bars) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      most = std::max(most, total_of(bar.pieces, pass));
      room = std::max(room, 12 + text_width(told_total(bar.pieces, pass), kLabelFont));
    }
  }
  const double scale = most > 0 ? (kTimelineWidth - kTimelineLeft - room) / most : 0;
  const double group = 30 + (kBar + 8) * static_cast<double>(bars.size());
  Svg svg(kTimelineWidth, 2 * group + 34,
          concat("where the time of a step goes, ", bars[0].name, " and ", bars[1].name));
  double top = 0;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    svg.text({6, top + 18}, name_of(pass), "label strong");
    double y = top + 26;
    for (const Bar& bar : bars) {
      svg.text({6, y + kBar / 2 + 4}, bar.name, "label");
      draw_pieces(svg, bar.pieces, pass, y, scale);
      svg.text({kTimelineLeft + total_of(bar.pieces, pass) * scale + 4, y + kBar / 2 + 4}, told_total(bar.pieces, pass),
               "label");
      y += kBar + 8;
    }
    top += group;
  }
  draw_ticks(svg, most, scale, top + 6);
  return std::move(svg).finish();
}

// The launches of a plan, with the times that the plan predicts.
std::vector<Piece> pieces_of(const StepPlan& plan) {
  std::vector<Piece> pieces;
  for (const PlanLaunch& launch : plan.launches) {
    Piece piece;
    piece.name = name_of(launch);
    piece.pass = launch.pass;
    piece.conversion = !launch.conversion_of.empty();
    const bool kernel = launch.candidate.find(" loops ") != std::string::npos;
    piece.operator_class = kernel ? OperatorClass::normalization : OperatorClass::contraction;
    piece.seconds = launch.predicted_seconds;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

Picture compared_timeline_picture(const StepPlan& a, const StepPlan& b) {
  const std::vector<Piece> of_a = pieces_of(a);
  const std::vector<Piece> of_b = pieces_of(b);
  Picture picture{"compared_timeline",
                  "Where the time of a step goes in each plan. Every box is a launch, as wide as its time; its number "
                  "is its place in the step.",
                  draw_bars({{"A", of_a}, {"B", of_b}}), false};
  picture.legend = {{LegendItem::Shape::box, "node contraction", "a library's product"},
                    {LegendItem::Shape::box, "node normalization", "generated kernel"},
                    {LegendItem::Shape::box, "node conversion", "layout conversion"}};
  return picture;
}

Picture timeline_picture(const StepMetrics& metrics) {
  Picture picture{"timeline",
                  "Where the time of a step goes. Each box is an operator (before) or a launch (after), as wide as its "
                  "time; its number is its place in the step.",
                  draw_bars({{"before", metrics.before}, {"after", metrics.after}}), false};
  picture.legend = class_legend(LegendItem::Shape::box);
  return picture;
}

}  // namespace millrace
