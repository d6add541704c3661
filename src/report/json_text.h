// Writes a JSON object field by field, lists with one element per line: no tree of the whole is built, and diffs stay
// small.
// Test: tests/golden/golden_test.cpp
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace millrace {

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
