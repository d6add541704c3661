#include <algorithm>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kTimelineWidth = 900;
constexpr double kTimelineLeft = 64;
constexpr double kBar = 30;
constexpr double kLabelFont = 11;  // of labels

double total_of(const std::vector<Piece>& pieces) {
  double total = 0;
  for (const Piece& piece : pieces) total += piece.seconds;
  return total;
}

// As text, with the number of unmeasured ones.
std::string told_total(const std::vector<Piece>& pieces) {
  const auto unknown =
      std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.seconds <= 0; });
  return concat(shown_seconds(total_of(pieces)), unknown > 0 ? concat(" + ", unknown, " not measured") : "");
}

void draw_pieces(Svg& svg, const std::vector<Piece>& pieces, double top, double scale, const std::string& name) {
  svg.text({6, top + kBar / 2 + 4}, name, "label strong");
  double x = kTimelineLeft;
  bool backward = false;
  for (const Piece& piece : pieces) {
    if (!backward && piece.pass == Pass::backward) {
      backward = true;
      svg.line({x, top - 4}, {x, top + kBar + 4}, "fastest", 1.5, "backward begins here");
    }
    const double width = piece.seconds * scale;
    svg.rectangle({x, top}, width, kBar, concat("node ", colour_of(piece)),
                  concat(piece.name, ": ", shown_seconds(piece.seconds)));
    const std::string label = shortened(piece.name, static_cast<size_t>(std::max(0.0, (width - 6) / 7)));
    if (width > 44) svg.text({x + width / 2, top + kBar / 2 + 4}, label, "label on-node", "middle");
    x += width;
  }
  svg.text({x + 4, top + kBar / 2 + 4}, told_total(pieces), "label");
}

// Ticks below both bars, and the seconds that they mean.
void draw_ticks(Svg& svg, double most, double scale, double bottom) {
  constexpr int kTimeTicks = 8;
  if (most <= 0) return;
  const double tick = tick_of(most, kTimeTicks);
  for (int k = 0; tick * k <= most * 1.001; ++k) {
    const double x = kTimelineLeft + tick * k * scale;
    svg.line({x, bottom}, {x, bottom + 5}, "fastest");
    svg.text({x, bottom + 18}, k == 0 ? "0" : shown_seconds(tick * k), "label", "middle");
  }
}

struct Bar {
  std::string name;
  const std::vector<Piece>& pieces;
};

std::string draw_bars(const Bar& one, const Bar& two) {
  const double most = std::max(total_of(one.pieces), total_of(two.pieces));
  const double room =
      12 + std::max(text_width(told_total(one.pieces), kLabelFont), text_width(told_total(two.pieces), kLabelFont));
  const double scale = most > 0 ? (kTimelineWidth - kTimelineLeft - room) / most : 0;
  Svg svg(kTimelineWidth, 2 * kBar + 56, concat("where the time of a step goes, ", one.name, " and ", two.name));
  draw_pieces(svg, one.pieces, 10, scale, one.name);
  draw_pieces(svg, two.pieces, kBar + 24, scale, two.name);
  draw_ticks(svg, most, scale, 2 * kBar + 28);
  return std::move(svg).finish();
}

// What a plan alone says about its launches.
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
  return {
      "compared_timeline",
      "Where the time of a step goes in each plan. Every box is a launch, as wide as its time: blue for a library's "
      "product, orange for a generated kernel, pink for a layout conversion. Backward begins at the thin line.",
      draw_bars({"A", of_a}, {"B", of_b}), false};
}

Picture timeline_picture(const StepMetrics& metrics) {
  return {"timeline",
          "Where the time of a step goes. Each box is an operator (before) or a launch (after), as wide as its "
          "time: contractions are blue, normalizations orange, elementwise operators yellow, conversions pink. The "
          "thin line is where "
          "backward begins.",
          draw_bars({"before", metrics.before}, {"after", metrics.after}), false};
}

}  // namespace millrace
