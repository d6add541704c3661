#include "plan/arena.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

bool alive_together(const ArenaBlock& a, const ArenaBlock& b) { return a.first <= b.last && b.first <= a.last; }

// The start of the smallest gap that fits between `neighbours`, which are sorted by offset; else their end.
int64_t best_offset(const std::vector<const ArenaBlock*>& neighbours, int64_t bytes, int64_t alignment) {
  int64_t best = -1;
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (const ArenaBlock* other : neighbours) {
    const int64_t gap = other->offset - end;
    if (gap >= bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    const int64_t other_end = other->offset + other->bytes;
    end = std::max(end, (other_end + alignment - 1) / alignment * alignment);
  }
  return best >= 0 ? best : end;
}

}  // namespace

int64_t place_blocks(std::vector<ArenaBlock>& blocks, int64_t alignment) {
  std::vector<size_t> by_size(blocks.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t l, size_t r) { return blocks[l].bytes > blocks[r].bytes; });
  int64_t end = 0;
  std::vector<const ArenaBlock*> placed;  // by offset
  for (const size_t k : by_size) {
    ArenaBlock& block = blocks[k];
    std::vector<const ArenaBlock*> neighbours;
    std::copy_if(placed.begin(), placed.end(), std::back_inserter(neighbours),
                 [&](const ArenaBlock* other) { return alive_together(block, *other); });
    block.offset = best_offset(neighbours, block.bytes, alignment);
    end = std::max(end, block.offset + block.bytes);
    const auto next = std::upper_bound(placed.begin(), placed.end(), &block,
                                       [](const ArenaBlock* l, const ArenaBlock* r) { return l->offset < r->offset; });
    placed.insert(next, &block);
  }
  return end;
}

}  // namespace millrace
