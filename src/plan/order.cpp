#include "plan/order.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {

// For each launch, those before it that it must stay behind: they write what it touches, or read what it writes.
std::vector<std::vector<size_t>> find_dependencies(const std::vector<std::vector<Touched>>& launches) {
  struct Uses {
    std::vector<size_t> readers;
    std::vector<size_t> writers;
  };
  std::map<int, Uses> uses;
  std::vector<std::vector<size_t>> before(launches.size());
  for (size_t number = 0; number < launches.size(); ++number) {
    for (const Touched& touched : launches[number]) {
      const Uses& of = uses[touched.stored];
      before[number].insert(before[number].end(), of.writers.begin(), of.writers.end());
      if (touched.written) before[number].insert(before[number].end(), of.readers.begin(), of.readers.end());
    }
    for (const Touched& touched : launches[number]) {
      Uses& of = uses[touched.stored];
      (touched.written ? of.writers : of.readers).push_back(number);
    }
  }
  return before;
}

int64_t reused_bytes(const std::vector<Touched>& previous, const std::vector<Touched>& next) {
  int64_t bytes = 0;
  for (const Touched& read : next) {
    const bool there = std::any_of(previous.begin(), previous.end(),
                                   [&](const Touched& touched) { return touched.stored == read.stored; });
    if (!read.written && there) bytes += read.bytes;
  }
  return bytes;
}

}  // namespace

std::vector<size_t> order_by_reuse(const std::vector<std::vector<Touched>>& launches) {
  const std::vector<std::vector<size_t>> before = find_dependencies(launches);
  std::vector<bool> done(launches.size(), false);
  std::vector<size_t> order;
  const std::vector<Touched> nothing;
  while (order.size() < launches.size()) {
    const std::vector<Touched>& previous = order.empty() ? nothing : launches[order.back()];
    size_t best = launches.size();
    int64_t most = -1;
    for (size_t number = 0; number < launches.size(); ++number) {
      const bool ready = std::all_of(before[number].begin(), before[number].end(), [&](size_t k) { return done[k]; });
      if (done[number] || !ready) continue;
      const int64_t bytes = reused_bytes(previous, launches[number]);
      if (bytes <= most) continue;
      most = bytes;
      best = number;
    }
    done[best] = true;
    order.push_back(best);
  }
  return order;
}

}  // namespace millrace
