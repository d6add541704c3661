#include "tools/validators.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/text.h"

namespace {

template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class Number>
CLI::Validator in_range(const char* what, Number least, Number most) {
  const auto check = [what, least, most](std::string& text) -> std::string {
    const std::optional<Number> value = parsed<Number>(text);
    if (value && *value >= least && *value <= most) return "";
    const bool bounded = most < std::numeric_limits<Number>::max();
    return millrace::concat("'", text, "' is not ", what, " of ", least, " or more",
                            bounded ? millrace::concat(" and at most ", most) : "");
  };
  return {check, ""};
}

// The multiplier of a unit; 0 if there is no such unit.
int64_t unit_named(const std::string& unit) {
  constexpr std::array<std::pair<const char*, int>, 4> kUnits = {{{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}}};
  for (const auto& [name, shift] : kUnits) {
    const std::string prefix = name;
    const bool fits = unit == prefix || unit == prefix + "B" || (shift > 0 && unit == prefix + "iB");
    if (fits) return int64_t{1} << shift;
  }
  return 0;
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) { return in_range("a whole number", least, most); }

CLI::Validator number(double least, double most) { return in_range("a number", least, most); }

CLI::Validator bytes() {
  const auto convert = [](std::string& text) -> std::string {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::optional<int64_t> count = parsed<int64_t>(text.substr(0, digits));
    const int64_t unit = unit_named(text.substr(digits));
    const std::optional<int64_t> all = count && unit > 0 ? millrace::checked_multiply(*count, unit) : std::nullopt;
    if (!all || *all < 1) return millrace::concat("'", text, "' is not a number of bytes, such as 4096 or 50MiB");
    text = millrace::concat(*all);
    return "";
  };
  return {convert, ""};
}
