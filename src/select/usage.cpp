#include "select/usage.h"

#include <algorithm>
#include <iterator>

namespace millrace {

int Usages::join(int a, int b) {
  if (a == kUnused || a == b) {
    if (a == b && (*this)[a].base >= 0) return kClash;
    return b;
  }
  if (b == kUnused) return a;
  const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32) | static_cast<uint32_t>(b);
  const auto [entry, fresh] = joins_.try_emplace(key, kClash);
  if (!fresh) return entry->second;
  const Usage& left = (*this)[a];
  const Usage& right = (*this)[b];
  if (left.base >= 0 && right.base >= 0) return kClash;
  Usage both;
  both.base = std::max(left.base, right.base);
  std::set_union(left.read.begin(), left.read.end(), right.read.begin(), right.read.end(),
                 std::back_inserter(both.read));
  std::erase(both.read, both.base);
  const int result = number(std::move(both));
  joins_[key] = result;
  return result;
}

}  // namespace millrace
