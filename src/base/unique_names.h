// Makes names unique by appending a number. Tests: tests/frontend/lower_test.cpp.
#pragma once

#include <string>
#include <unordered_map>

#include "base/text.h"

namespace millrace {

class UniqueNames {
 public:
  // `name` itself, or name + separator + 2, 3, …
  std::string take(const std::string& name, const char* separator) {
    const auto [entry, fresh] = taken_.try_emplace(name, 1);
    if (fresh) return name;
    int& count = entry->second;  // stays valid: only new entries are added below
    std::string candidate;
    do {
      candidate = concat(name, separator, ++count);
    } while (taken_.contains(candidate));
    taken_.emplace(candidate, 1);
    return candidate;
  }

  // Takes `name`; returns whether it was free.
  bool claim(const std::string& name) { return taken_.try_emplace(name, 1).second; }
  void release(const std::string& name) { taken_.erase(name); }

 private:
  std::unordered_map<std::string, int> taken_;
};

}  // namespace millrace
