#include "random/value.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace millrace::random_programs {

int64_t elements(const Shape& shape) {
  int64_t product = 1;
  for (const Axis& axis : shape) product *= axis.extent;
  return product;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Axis& axis = result[lead + i];
    if (axis.extent == 1) {
      axis = shorter[i];
    } else if (shorter[i].extent != 1 && shorter[i].extent != axis.extent) {
      return std::nullopt;
    }
  }
  // A value that is too large already may be added to.
  if (elements(result) > std::max({kMostElements, elements(a), elements(b)})) return std::nullopt;
  return result;
}

bool same_extents(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Axis& x, const Axis& y) { return x.extent == y.extent; });
}

std::string operand(const Value& value, Binding loosest) {
  return value.binding <= loosest ? value.text : "(" + value.text + ")";
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

}  // namespace millrace::random_programs
