#include "report/units.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace millrace {

std::string with_commas(double count) {
  const std::string digits = fixed(count, 0);
  std::string text;
  for (size_t k = 0; k < digits.size(); ++k) {
    if (k > 0 && (digits.size() - k) % 3 == 0) text += ',';
    text += digits[k];
  }
  return text;
}

std::string about(double count) {
  const double digits = std::pow(10, std::max(0.0, std::floor(std::log10(std::max(count, 1.0))) - 1));
  return concat("about ", with_commas(std::round(count / digits) * digits), " (estimated)");
}

std::string shown_ratio(double ratio) {
  int digits = 2;
  for (double shown = ratio; shown > 0 && shown < 0.1 && digits < 12; shown *= 10) ++digits;
  return fixed(ratio, digits);
}

std::string shown_seconds(double seconds) {
  if (seconds >= 1) return concat(fixed(seconds, 2), " s");
  if (seconds >= 1e-3) return concat(fixed(seconds * 1e3, 2), " ms");
  if (seconds >= 1e-6 || seconds <= 0) return concat(fixed(seconds * 1e6, 2), " µs");
  return concat(fixed(seconds * 1e9, 2), " ns");
}

std::string round_seconds(double seconds) {
  if (seconds <= 0) return "0";
  const std::string text = shown_seconds(seconds);
  const size_t unit = text.find(' ');
  std::string number = text.substr(0, unit);
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number + text.substr(unit);
}

std::string shown_bytes(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {" KiB", " MiB", " GiB", " TiB"};
  if (bytes < 1024) return concat(bytes, " B");
  double count = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; count >= 1023.95 && unit + 1 < kUnits.size(); ++unit) count /= 1024;  // 1023.95 would print as 1024.0
  return concat(fixed(count, 1), kUnits.at(unit));
}

}  // namespace millrace
