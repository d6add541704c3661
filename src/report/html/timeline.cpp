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

double total_of(const std::vector<Piece>& pieces) {
  double total = 0;
  for (const Piece& piece : pieces) total += piece.seconds;
  return total;
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
  svg.text({x + 4, top + kBar / 2 + 4}, shown_seconds(total_of(pieces)), "label");
}

}  // namespace

Picture timeline_picture(const StepMetrics& metrics) {
  const double most = std::max(total_of(metrics.before), total_of(metrics.after));
  const double scale = most > 0 ? (kTimelineWidth - kTimelineLeft - 70) / most : 0;
  Svg svg(kTimelineWidth, 2 * kBar + 36, "where the time of a step goes, before and after");
  draw_pieces(svg, metrics.before, 10, scale, "before");
  draw_pieces(svg, metrics.after, kBar + 24, scale, "after");
  return {
      "timeline",
      "Where the time of a step goes: each box is an operator (before) or a launch (after), as wide as it takes "
      "time: blue contractions, orange normalizations, yellow elementwise, pink conversions. The thin line is where "
      "backward begins.",
      std::move(svg).finish(), false};
}

}  // namespace millrace
