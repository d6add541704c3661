#include "report/html/svg.h"

#include <cmath>

#include "base/text.h"
#include "report/html/escape.h"

namespace millrace {
namespace {

// A tenth of a pixel is precise enough, and short.
std::string number(double value) {
  std::string text = fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

// Its first `count` characters.
std::string beginning(std::string_view text, size_t count) {
  std::string kept;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U && count-- == 0) break;
    kept += c;
  }
  return kept;
}

}  // namespace

double text_width(std::string_view text, double font_size) {
  return static_cast<double>(characters(text)) * font_size * 0.62;
}

std::string shortened(std::string_view text, size_t most) {
  if (characters(text) <= most) return std::string(text);
  return beginning(text, most > 0 ? most - 1 : 0) + "…";
}

std::vector<std::string> wrapped_lines(std::string_view text, size_t most) {
  std::vector<std::string> lines;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) lines.push_back(std::move(line));
    line.clear();
  };
  for (std::string word : split(text, ' ')) {
    if (!line.empty() && characters(line) + 1 + characters(word) > most) end_line();
    while (characters(word) > most) {  // a word alone is too long
      std::string head = beginning(word, most);
      const size_t joint = head.find_last_of("-_./");
      if (joint != std::string::npos && joint > head.size() / 3) head.resize(joint + 1);
      lines.push_back(head);
      word.erase(0, head.size());
    }
    line += line.empty() ? word : concat(" ", word);
  }
  end_line();
  return lines;
}

Svg::Svg(double width, double height, std::string_view label) {
  text_ = concat("<svg viewBox=\"0 0 ", number(width), " ", number(height), "\" width=\"", number(width),
                 "\" height=\"", number(height), "\"",
                 label.empty() ? std::string(" aria-hidden=\"true\"")
                               : concat(" role=\"img\" aria-label=\"", escape_html(label), "\""),
                 ">\n");
}

void Svg::element(std::string_view name, const std::string& attributes, std::string_view classes,
                  std::string_view tip) {
  text_ += concat("<", name, " ", attributes, " class=\"", escape_html(classes), "\"");
  text_ += tip.empty() ? "/>\n" : concat("><title>", escape_html(tip), "</title></", name, ">\n");
}

void Svg::rectangle(Point corner, double width, double height, std::string_view classes, std::string_view tip,
                    double radius) {
  constexpr double kThin = 2;  // the edge covers this much
  element("rect",
          concat("x=\"", number(corner.x), "\" y=\"", number(corner.y), "\" width=\"", number(width), "\" height=\"",
                 number(height), "\"", radius > 0 ? concat(" rx=\"", number(radius), "\"") : ""),
          width < kThin || height < kThin ? concat(classes, " thin") : std::string(classes), tip);
}

void Svg::circle(Point centre, double radius, std::string_view classes, std::string_view tip) {
  element("circle", concat("cx=\"", number(centre.x), "\" cy=\"", number(centre.y), "\" r=\"", number(radius), "\""),
          classes, tip);
}

void Svg::line(Point from, Point to, std::string_view classes, double width, std::string_view tip) {
  element("line",
          concat("x1=\"", number(from.x), "\" y1=\"", number(from.y), "\" x2=\"", number(to.x), "\" y2=\"",
                 number(to.y), "\" stroke-width=\"", number(width), "\""),
          classes, tip);
}

void Svg::polygon(const std::vector<Point>& points, std::string_view classes, std::string_view tip) {
  std::vector<std::string> texts;
  for (const Point& point : points) texts.push_back(concat(number(point.x), ",", number(point.y)));
  element("polygon", concat("points=\"", join(texts, " "), "\""), classes, tip);
}

void Svg::curve(const std::vector<Point>& points, std::string_view classes, double width, std::string_view tip) {
  std::string path = concat("M", number(points[0].x), ",", number(points[0].y));
  for (size_t k = 1; k < points.size(); ++k) {
    const double middle = (points[k - 1].y + points[k].y) / 2;
    path += concat("C", number(points[k - 1].x), ",", number(middle), " ", number(points[k].x), ",", number(middle),
                   " ", number(points[k].x), ",", number(points[k].y));
  }
  element("path", concat("d=\"", path, "\" stroke-width=\"", number(width), "\""), classes, tip);
}

void Svg::spline(const std::vector<Point>& points, std::string_view classes, double width, std::string_view tip) {
  std::string path;
  for (size_t k = 0; k < points.size(); ++k)
    path += concat(k == 0 ? "M" : k % 3 == 1 ? "C" : " ", number(points[k].x), ",", number(points[k].y));
  element("path", concat("d=\"", path, "\" stroke-width=\"", number(width), "\""), classes, tip);
}

void Svg::text(Point at, std::string_view text, std::string_view classes, std::string_view anchor, double angle) {
  const std::string turn =
      angle == 0 ? "" : concat(" transform=\"rotate(", number(angle), " ", number(at.x), " ", number(at.y), ")\"");
  text_ += concat("<text x=\"", number(at.x), "\" y=\"", number(at.y), "\" text-anchor=\"", anchor, "\"", turn,
                  " class=\"", escape_html(classes), "\">", escape_html(text), "</text>\n");
}

void Svg::open(std::string_view kind, size_t number, std::string_view tip) {
  text_ += concat("<g class=\"", kind, "\" data-", kind, "=\"", number, "\"><title>", escape_html(tip), "</title>\n");
}

void Svg::close() { text_ += "</g>\n"; }

std::string Svg::finish() && { return std::move(text_) + "</svg>"; }

}  // namespace millrace
