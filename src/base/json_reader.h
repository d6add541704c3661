// Values out of an untrusted JSON tree: every complaint names its place, such as launches[3].buffers[0], and says what
// would be right. After the first complaint reading goes on with empty values, and that complaint stands.
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

  // A field, or an element, with its place.
  struct Node {
    const Json* json = nullptr;  // nullptr: it is missing
    std::string place;
  };

  bool failed() const { return !place_.empty(); }
  // Of kind bad_input. `file` is for the message.
  Error error(const std::string& file) const;
  void complain(const Node& node, const std::string& what, const std::string& remedy);

  // Complains when it is no object, or has a field that is not in `keys`.
  void object(const Node& node, const std::vector<std::string>& keys);
  static Node field(const Node& node, const char* key);
  std::string text(const Node& node);
  double number(const Node& node);  // finite
  int64_t integer(const Node& node, int64_t least, int64_t most);
  std::vector<Node> elements(const Node& node);

 private:
  void wrong_type(const Node& node, const std::string& wanted);

  std::string place_;
  std::string what_;
  std::string remedy_;
};

// The tree of a text, unless it is no JSON or its brackets nest deeper than `deepest`. `file` is for the message.
Result<JsonReader::Json> parse_json(std::string_view text, int deepest, const std::string& file);

}  // namespace millrace
