// Writes a JSON object field by field, lists with one element per line: no tree of the whole is built, and diffs stay
// small.
// Test: tests/golden/golden_test.cpp
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace millrace {

// A count as an integer, "124" and not "124.0"; other numbers as they are.
inline nlohmann::ordered_json count_json(double count) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::abs(count) < kExact && std::trunc(count) == count) return static_cast<int64_t>(count);
  return count;
}

class JsonText {
 public:
  void field(std::string_view key, const nlohmann::ordered_json& value) {
    begin(key);
    text_ += value.dump();
  }

  // `element(k)` is the list's k-th element.
  template <class Element>
  void list(std::string_view key, size_t count, Element element) {
    begin(key);
    text_ += '[';
    for (size_t k = 0; k < count; ++k) {
      text_ += k == 0 ? "\n    " : ",\n    ";
      text_ += nlohmann::ordered_json(element(k)).dump();
    }
    text_ += count == 0 ? "]" : "\n  ]";
  }

  std::string finish() && { return std::move(text_) + "\n}\n"; }

 private:
  void begin(std::string_view key) {
    text_ += text_.empty() ? "{\n  " : ",\n  ";
    text_ += nlohmann::ordered_json(key).dump();
    text_ += ": ";
  }

  std::string text_;
};

}  // namespace millrace
