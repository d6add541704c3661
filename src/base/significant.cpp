#include "base/significant.h"

#include <array>
#include <charconv>

namespace millrace {

std::string significant(double value, int digits) {
  std::array<char, 32> text{};  // 17 digits, a sign, a point and an exponent
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

}  // namespace millrace
