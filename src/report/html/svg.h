// Builds an SVG picture, element by element. Colours and fonts are classes of report.css.
// Test: tests/report/violin_test.cpp
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct Point {
  double x = 0;
  double y = 0;
};

// The approximate width of `text` at a font size, for reserving space.
double text_width(std::string_view text, double font_size);

// The text, or its beginning and "…" if it is longer than `most` characters.
std::string shortened(std::string_view text, size_t most);

// The whole text in lines of at most `most` characters, broken at blanks where possible.
std::vector<std::string> wrapped_lines(std::string_view text, size_t most);

class Svg {
 public:
  // A picture without a label is decoration: screen readers skip it.
  Svg(double width, double height, std::string_view label);

  // `tip`: shown when the pointer is over the element, or on a tap; may be empty.
  void rectangle(Point corner, double width, double height, std::string_view classes, std::string_view tip = {},
                 double radius = 0);
  void circle(Point centre, double radius, std::string_view classes, std::string_view tip = {});
  void line(Point from, Point to, std::string_view classes, double width = 1, std::string_view tip = {});
  // Straight lines through the points; closed ones are filled.
  void polygon(const std::vector<Point>& points, std::string_view classes, std::string_view tip = {});
  // A smooth line through the points; each segment leaves and arrives vertically.
  void curve(const std::vector<Point>& points, std::string_view classes, double width, std::string_view tip = {});
  // Consecutive cubic splines: a start, and for each spline two control points and an end.
  void spline(const std::vector<Point>& points, std::string_view classes, double width, std::string_view tip = {});
  // `anchor`: start, middle or end; rotated by `angle` degrees.
  void text(Point at, std::string_view text, std::string_view classes, std::string_view anchor = "start",
            double angle = 0);

  // Groups what follows, up to close(), into one element for the script: `kind` and `number` say which, and the group
  // has a tip of its own.
  void open(std::string_view kind, size_t number, std::string_view tip);
  void close();

  std::string finish() &&;

 private:
  void element(std::string_view name, const std::string& attributes, std::string_view classes, std::string_view tip);

  std::string text_;
};

}  // namespace millrace
