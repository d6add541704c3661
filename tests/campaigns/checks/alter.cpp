#include "campaigns/checks/alter.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace millrace::campaigns {
namespace {

template <class List>
auto& chosen_of(List&& list, std::mt19937_64& random) {
  return list[random() % list.size()];
}

void collect(Json& node, std::vector<Json*>& nodes) {
  nodes.push_back(&node);
  if (!node.is_structured()) return;
  for (Json& child : node) collect(child, nodes);
}

int64_t another_integer(int64_t value, std::mt19937_64& random) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::array<int64_t, 14> others = {0,
                                          -1,
                                          1,
                                          kMost,
                                          -kMost - 1,
                                          kMost - 63,
                                          int64_t{1} << 31,
                                          int64_t{1} << 32,
                                          int64_t{1} << 62,
                                          value ^ 1,
                                          value ^ 64,
                                          ~value,
                                          static_cast<int64_t>(random()),
                                          static_cast<int64_t>(random() % 100)};
  return chosen_of(others, random);
}

std::string another_text(std::string text, std::mt19937_64& random) {
  switch (random() % 6) {
    case 0: return "";
    case 1: return text + text;
    case 2: return std::string(random() % 5000, static_cast<char>(random() % 128));
    case 3: return "../../../../etc/passwd";
    case 4:
      if (!text.empty()) text.erase(random() % text.size(), 1 + random() % 3);
      return text;
    default:
      if (!text.empty()) chosen_of(text, random) = static_cast<char>(32 + random() % 95);
      return text;
  }
}

void change_list(Json& list, std::mt19937_64& random) {
  if (list.empty()) return;
  const size_t at = random() % list.size();
  switch (random() % 3) {
    case 0: list.erase(at); return;
    case 1: {
      const Json copy = list[at];
      list.push_back(copy);
      return;
    }
    default: std::swap(list[at], chosen_of(list, random)); return;
  }
}

void change_object(Json& object, std::mt19937_64& random) {
  if (object.empty()) return;
  auto at = object.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(random() % object.size()));
  if (random() % 2 == 0)
    object.erase(at.key());
  else
    object["unknown"] = at.value();
}

void change(Json& node, std::mt19937_64& random) {
  if (random() % 16 == 0)
    node =
        chosen_of(std::array<Json, 5>{Json(nullptr), Json(true), Json::array(), Json::object(), Json(1e308)}, random);
  else if (node.is_number_integer())
    node = another_integer(node.get<int64_t>(), random);
  else if (node.is_number_float())
    node = chosen_of(std::array<double, 5>{0.0, -1.0, 1e-300, 1e300, 1e-3}, random);
  else if (node.is_string())
    node = another_text(node.get<std::string>(), random);
  else if (node.is_array())
    change_list(node, random);
  else if (node.is_object())
    change_object(node, random);
}

}  // namespace

void alter(Json& document, const std::string& spared, std::mt19937_64& random) {
  const Json kept = document[spared];
  for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
    std::vector<Json*> nodes;
    collect(document, nodes);
    Json& node = *chosen_of(nodes, random);
    if (random() % 4 == 0) {
      const Json other = *chosen_of(nodes, random);
      if (other.type() == node.type()) node = other;
    } else {
      change(node, random);
    }
    if (!document.is_object()) return;
  }
  document[spared] = kept;
}

}  // namespace millrace::campaigns
