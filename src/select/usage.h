// What a set of partitions needs from a tensor: the layout that its writer writes, if the writer is in the set, and the
// layouts that the readers in the set read. Each distinct usage has a number, so that table rows are short. Test:
// tests/select/select_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/id.h"

namespace millrace {

struct Usage {
  int base = -1;          // the written layout; -1: not known yet
  std::vector<int> read;  // ascending, without the base

  bool operator<(const Usage& other) const { return base != other.base ? base < other.base : read < other.read; }
};

inline constexpr int kClash = -1;  // two writers

class Usages {
 public:
  Usages() { number({}); }

  static constexpr int kUnused = 0;  // no partition of the set touches the tensor

  int number(Usage usage) {
    const auto [entry, fresh] = numbers_.try_emplace(std::move(usage), static_cast<int>(usages_.size()));
    if (fresh) usages_.push_back(entry->first);
    return entry->second;
  }

  const Usage& operator[](int number) const { return usages_[as_index(number)]; }

  // The union of both needs.
  int join(int a, int b);

 private:
  std::vector<Usage> usages_;
  std::map<Usage, int> numbers_;
  std::unordered_map<uint64_t, int> joins_;
};

}  // namespace millrace
