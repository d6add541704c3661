// Reads values from an untrusted JSON tree. Every error names its path, such as launches[3].buffers[0], and says what
// is expected. After the first error, reading continues with empty values, and later errors are ignored. Tests:
// tests/plan/plan_json_test.cpp, tests/measure/measurements_json_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  // A field or an element, with its path.
  struct Node {
    const Json* json = nullptr;  // nullptr if missing
    std::string path;
  };

  bool failed() const { return !path_.empty(); }
  // The first error, of kind bad_input. `file` is for the message.
  Error error(const std::string& file) const;
  void complain(const Node& node, const std::string& what, const std::string& remedy);

  // Checks that it is an object, and that all its fields are in `keys`.
  void object(const Node& node, const std::vector<std::string>& keys);
  static Node field(const Node& node, const char* key);
  std::string text(const Node& node);
  bool boolean(const Node& node);
  double number(const Node& node);  // finite
  int64_t integer(const Node& node, int64_t least, int64_t most);
  std::vector<Node> elements(const Node& node);

 private:
  void wrong_type(const Node& node, const std::string& wanted);

  std::string path_;  // of the first error; empty: none
  std::string what_;
  std::string remedy_;
};

// Parses a text. An error if it is not JSON, or its brackets nest deeper than `deepest`. `file` is for the message.
Result<JsonReader::Json> parse_json(std::string_view text, int deepest, const std::string& file);

}  // namespace millrace
