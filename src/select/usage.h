// What some of a tensor's touchers ask of it: the layout that its writer writes, once that is among them, and the set
// of layouts that the readers among them read. Each distinct usage has a number, so that rows of tables are short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace millrace {

struct Usage {
  int base = -1;          // the written layout; -1: not known yet
  std::vector<int> read;  // ascending, without the base

  bool operator<(const Usage& other) const { return base != other.base ? base < other.base : read < other.read; }
};

inline constexpr int kClash = -1;  // of two writers

class Usages {
 public:
  Usages() { number({}); }

  static constexpr int kUnused = 0;  // by none

  int number(Usage usage) {
    const auto [entry, fresh] = numbers_.try_emplace(std::move(usage), static_cast<int>(usages_.size()));
    if (fresh) usages_.push_back(entry->first);
    return entry->second;
  }

  const Usage& operator[](int number) const { return usages_[static_cast<size_t>(number)]; }

  // What both ask together.
  int join(int a, int b);

 private:
  std::vector<Usage> usages_;
  std::map<Usage, int> numbers_;
  std::unordered_map<uint64_t, int> joins_;
};

}  // namespace millrace
