#include "report/html/legend.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "report/html/escape.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kSwatchWidth = 22;
constexpr double kSwatchHeight = 14;
constexpr double kLegendFont = 11;
constexpr double kLegendRow = 18;
constexpr double kLegendGap = 18;

void draw_swatch(Svg& svg, Point at, const LegendItem& item) {
  const Point centre{at.x + kSwatchWidth / 2, at.y + kSwatchHeight / 2};
  switch (item.shape) {
    case LegendItem::Shape::box: svg.rectangle({at.x + 2, at.y + 1}, kSwatchWidth - 4, 12, item.classes); break;
    case LegendItem::Shape::disc: svg.circle(centre, 5, item.classes); break;
    case LegendItem::Shape::diamond:
      svg.polygon({{centre.x, at.y + 1}, {centre.x + 6, centre.y}, {centre.x, at.y + 13}, {centre.x - 6, centre.y}},
                  item.classes);
      break;
    case LegendItem::Shape::line:
      svg.line({at.x + 1, centre.y}, {at.x + kSwatchWidth - 1, centre.y}, item.classes, 2);
      break;
    case LegendItem::Shape::bar: svg.line({centre.x, at.y + 1}, {centre.x, at.y + 13}, item.classes, 2); break;
  }
}

double number_after(const std::string& text, const std::string& name) {
  const size_t at = text.find(concat(" ", name, "=\""));
  double value = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at + name.size() + 3, text.data() + text.size(), value);
  return value;
}

// The legend in rows of at most `width`: drawn into a picture of its own, which is as high as it needs to be.
Svg legend_rows(const std::vector<LegendItem>& legend, double width) {
  std::vector<Point> places;
  Point next{4, 2};
  for (const LegendItem& item : legend) {
    const double needed = kSwatchWidth + 6 + text_width(item.text, kLegendFont) + kLegendGap;
    if (next.x > 4 && next.x + needed > width) next = {4, next.y + kLegendRow};
    places.push_back(next);
    next.x += needed;
  }
  Svg svg(width, next.y + kLegendRow + 4, "legend");
  for (size_t k = 0; k < legend.size(); ++k) {
    draw_swatch(svg, places[k], legend[k]);
    svg.text({places[k].x + kSwatchWidth + 6, places[k].y + 11}, legend[k].text, "label");
  }
  return svg;
}

}  // namespace

std::string legend_html(const std::vector<LegendItem>& legend) {
  if (legend.empty()) return "";
  std::string html = "<ul class=\"legend\" aria-label=\"legend\">";
  for (const LegendItem& item : legend) {
    Svg svg(kSwatchWidth, kSwatchHeight, "");
    draw_swatch(svg, {0, 0}, item);
    html += concat("<li>", std::move(svg).finish(), escape_html(item.text), "</li>");
  }
  return html + "</ul>\n";
}

std::string with_legend(const Picture& picture) {
  if (picture.legend.empty()) return picture.svg;
  const double width = std::max(320.0, number_after(picture.svg, "width"));
  const double height = number_after(picture.svg, "height");
  const std::string legend = std::move(legend_rows(picture.legend, width)).finish();
  const std::string below = concat("<svg y=\"", fixed(height, 1), "\"", legend.substr(4));
  const std::string all = fixed(height + number_after(legend, "height"), 1);
  return concat("<svg viewBox=\"0 0 ", fixed(width, 1), " ", all, "\" width=\"", fixed(width, 1), "\" height=\"", all,
                "\">\n", picture.svg, "\n", below, "\n</svg>");
}

std::vector<LegendItem> class_legend(LegendItem::Shape shape) {
  return {{shape, "node contraction", "contraction (matrix product)"},
          {shape, "node normalization", "normalization (a reduction, then a map)"},
          {shape, "node elementwise", "elementwise"},
          {shape, "node conversion", "layout conversion"}};
}

}  // namespace millrace
