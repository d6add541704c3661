#include "base/json_reader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

Error in_file(const std::string& file, const std::string& message, const std::string& remedy) {
  Error error = Error::make(ErrorKind::bad_input, message, remedy);
  error.diagnostics[0].file = file;
  return error;
}

// nlohmann's parser builds its tree on the heap but destroys it by recursion.
bool too_deep(std::string_view text, int deepest) {
  int depth = 0;
  bool quoted = false;
  for (size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (quoted && c == '\\')
      ++k;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{'))
      ++depth;
    else if (!quoted && (c == ']' || c == '}'))
      --depth;
    if (depth > deepest) return true;
  }
  return false;
}

// Rejects objects with a name twice: nlohmann keeps one of the fields, and other readers may keep another.
class KeysOnce {
 public:
  using Event = JsonReader::Json::parse_event_t;

  void note(Event event, const JsonReader::Json& parsed) {
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event != Event::key) return;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!open_.back().insert(key).second) repeated_ = key;
  }

  const std::string& repeated() const { return repeated_; }  // empty: none

 private:
  std::vector<std::set<std::string>> open_;  // the names of every object that has not ended
  std::string repeated_;
};

}  // namespace

Error JsonReader::error(const std::string& file) const { return in_file(file, concat(path_, ": ", what_), remedy_); }

void JsonReader::complain(const Node& node, const std::string& what, const std::string& remedy) {
  if (failed()) return;
  path_ = node.path.empty() ? "the file" : node.path;
  what_ = what;
  remedy_ = remedy;
}

void JsonReader::wrong_type(const Node& node, const std::string& wanted) {
  complain(node, node.json == nullptr ? std::string("it is missing") : concat("it is of type ", node.json->type_name()),
           concat("give ", wanted));
}

void JsonReader::object(const Node& node, const std::vector<std::string>& keys) {
  if (node.json == nullptr || !node.json->is_object())
    return wrong_type(node, concat("an object with ", join(keys, ", ")));
  for (const auto& [key, value] : node.json->items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string meant = nearest(key, keys);
    complain({&value, node.path.empty() ? key : concat(node.path, ".", key)}, "unknown field",
             meant.empty() ? concat("fields: ", join(keys, ", ")) : concat("did you mean '", meant, "'?"));
  }
}

JsonReader::Node JsonReader::field(const Node& node, const char* key) {
  Node found{nullptr, node.path.empty() ? key : concat(node.path, ".", key)};
  if (node.json == nullptr || !node.json->is_object()) return found;
  const auto at = node.json->find(key);
  if (at != node.json->end()) found.json = &*at;
  return found;
}

std::string JsonReader::text(const Node& node) {
  if (node.json != nullptr && node.json->is_string()) return node.json->get<std::string>();
  wrong_type(node, "a string");
  return {};
}

bool JsonReader::boolean(const Node& node) {
  if (node.json != nullptr && node.json->is_boolean()) return node.json->get<bool>();
  wrong_type(node, "true or false");
  return false;
}

double JsonReader::number(const Node& node) {
  if (node.json == nullptr || !node.json->is_number()) {
    wrong_type(node, "a number");
    return 0;
  }
  const auto value = node.json->get<double>();
  if (!std::isfinite(value)) complain(node, "it is out of range", "give a finite number");
  return value;
}

int64_t JsonReader::integer(const Node& node, int64_t least, int64_t most) {
  if (node.json == nullptr || !node.json->is_number_integer()) {
    wrong_type(node, "an integer");
    return least;
  }
  const bool large = node.json->is_number_unsigned() && node.json->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t value = large ? INT64_MAX : node.json->get<int64_t>();
  if (large || value < least || value > most) {
    complain(node, concat(node.json->dump(), " is out of range"), concat("give an integer from ", least, " to ", most));
    return least;
  }
  return value;
}

std::vector<JsonReader::Node> JsonReader::elements(const Node& node) {
  std::vector<Node> found;
  if (node.json == nullptr || !node.json->is_array()) {
    wrong_type(node, "an array");
    return found;
  }
  for (size_t k = 0; k < node.json->size(); ++k) found.push_back({&(*node.json)[k], concat(node.path, "[", k, "]")});
  return found;
}

Result<JsonReader::Json> parse_json(std::string_view text, int deepest, const std::string& file) {
  if (too_deep(text, deepest))
    return in_file(file, concat("brackets nest deeper than ", deepest), "no file that Millrace writes does");
  try {
    KeysOnce keys;
    JsonReader::Json root = JsonReader::Json::parse(text, [&](int, KeysOnce::Event event, JsonReader::Json& parsed) {
      keys.note(event, parsed);
      return true;
    });
    if (keys.repeated().empty()) return root;
    return in_file(file, concat("the field '", keys.repeated(), "' occurs twice in an object"),
                   "no file that Millrace writes repeats one");
  } catch (const JsonReader::Json::exception& problem) {
    // Remove nlohmann's prefix: "parse error at line 1, column 2: …".
    const std::string message = problem.what();
    const size_t prefix = message.find("] ");
    return in_file(file, prefix == std::string::npos ? message : message.substr(prefix + 2),
                   "the file is not JSON, or it is truncated");
  }
}

}  // namespace millrace
