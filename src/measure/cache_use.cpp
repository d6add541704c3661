#include "measure/cache_use.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.h"
#include "ir/layout.h"

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kFastBytes = kMiB;  // the caches of one core hold so many, so one copy is like many
constexpr int64_t kMostCopies = 16;

}  // namespace

CacheUse cache_use(double program_bytes, int64_t last_level_cache) {
  CacheUse caches{program_bytes > static_cast<double>(last_level_cache), last_level_cache, 0};
  if (caches.cold || program_bytes <= static_cast<double>(kFastBytes)) return caches;
  const auto rounded = std::bit_ceil(static_cast<uint64_t>(std::ceil(program_bytes)));
  caches.turn_bytes = std::min(static_cast<int64_t>(rounded), last_level_cache);
  return caches;
}

double bytes_of_tensors(const Graph& graph) {
  double bytes = 0;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (words_of(graph, TensorId(k)) > 0)
      bytes += static_cast<double>(elements_of(graph, TensorId(k)) * bytes_of(graph.tensors[k].dtype));
  }
  return bytes;
}

int64_t copies_in_turn(const CacheUse& caches, double bytes) {
  const auto whole = std::max<int64_t>(static_cast<int64_t>(bytes), 1);
  if (caches.cold) return std::clamp<int64_t>(caches.cache_bytes / whole + 1, 2, kMostCopies);
  return std::clamp<int64_t>((caches.turn_bytes + whole - 1) / whole, 1, kMostCopies);
}

std::string print_cache_use(const CacheUse& caches) {
  if (caches.cold) return "from memory";
  if (caches.turn_bytes == 0) return "from cache";
  return concat("from cache, ", caches.turn_bytes / kMiB, " MiB in turn");
}

std::vector<std::string> all_cache_uses(int64_t last_level_cache) {
  const auto cache = static_cast<double>(last_level_cache);
  std::vector<std::string> texts = {print_cache_use(cache_use(2 * cache, last_level_cache)),
                                    print_cache_use(cache_use(0, last_level_cache))};
  for (int64_t bytes = 2 * kFastBytes; bytes < last_level_cache; bytes *= 2)
    texts.push_back(print_cache_use(cache_use(static_cast<double>(bytes), last_level_cache)));
  const std::string largest = print_cache_use(cache_use(cache, last_level_cache));
  if (std::find(texts.begin(), texts.end(), largest) == texts.end()) texts.push_back(largest);
  return texts;
}

}  // namespace millrace
