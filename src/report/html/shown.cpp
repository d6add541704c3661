#include <cmath>

#include "base/text.h"
#include "report/html/pictures.h"
#include "report/units.h"

namespace millrace {
namespace {

// Three digits.
std::string digits(double value) { return fixed(value, value >= 100 ? 0 : value >= 10 ? 1 : 2); }

}  // namespace

double tick_of(double most, int ticks) {
  const double least = most / ticks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

std::string short_count(double number) {
  if (number >= 1e12) return concat(digits(number / 1e12), " T");
  if (number >= 1e9) return concat(digits(number / 1e9), " G");
  if (number >= 1e6) return concat(digits(number / 1e6), " M");
  return number == std::floor(number) || number >= 1e4 ? with_commas(number) : digits(number);
}

std::string short_bytes(double bytes) {
  if (bytes >= 1 << 30) return concat(digits(bytes / (1 << 30)), " GiB");
  if (bytes >= 1 << 20) return concat(digits(bytes / (1 << 20)), " MiB");
  if (bytes >= 1 << 10) return concat(digits(bytes / (1 << 10)), " KiB");
  return concat(fixed(bytes, 0), " B");
}

std::string colour_of(const Piece& piece) {
  if (piece.conversion) return "conversion";
  switch (piece.operator_class) {
    case OperatorClass::contraction: return "contraction";
    case OperatorClass::normalization: return "normalization";
    case OperatorClass::elementwise: return "elementwise";
  }
  return "";
}

}  // namespace millrace
