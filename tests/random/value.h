// An expression of a random program, with its shape and bound, so that it can be combined with others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::random_programs {

struct Axis {
  std::string size;  // the module-level size; "" is an axis of extent one that None or keepdims made
  int64_t extent = 1;
};

using Shape = std::vector<Axis>;

// How tightly an expression binds, as in Python's grammar: what must be put in parentheses follows from it.
enum class Binding { atom, power, sign, product, sum };

struct Value {
  std::string text;
  Binding binding = Binding::atom;
  Shape shape;
  double bound = 1;    // few elements are larger in magnitude; none of an exact value is
  bool exact = false;  // an argument's elements, only moved: comparing two of these cannot depend on rounding
};

// Limits that keep 5,000 programs fast to interpret.
inline constexpr int64_t kMostElements = 400;
inline constexpr int64_t kMostPoints = 5000;

// Values with more axes are not used any more: with extents of one, their number of axes would grow without limit.
inline constexpr size_t kMostAxes = 5;

int64_t elements(const Shape& shape);

// NumPy's broadcast of the two; nothing if they do not broadcast, or if it is too large and larger than both.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

// Whether the two have the same extents.
bool same_extents(const Shape& a, const Shape& b);

// The text, in parentheses if it binds more loosely than `loosest`.
std::string operand(const Value& value, Binding loosest);

// A number as text that Python and Millrace read back exactly.
std::string number_text(double value);

}  // namespace millrace::random_programs
