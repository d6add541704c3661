#include <algorithm>

#include "candidates/candidates.h"

namespace millrace {

// Of a stage: two panels, whose rows, or columns where these lie together, are 16 bytes apart from each other so that
// they are in different banks, and in backward two floats a row. As codegen/prelude/cuda_attention.h has it, which
// checks that.
int64_t attention_shared_bytes(const Attention& attention, const AttentionWay& way) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kApart = 16;
  const auto panel = [&](int64_t columns) {
    return kHalf * way.panel * columns + kApart * std::max<int64_t>(way.panel, columns);
  };
  const int64_t pairs = attention.backward ? 8 * way.panel : 0;
  return way.stages * (panel(attention.inner) + panel(attention.values) + pairs);
}

}  // namespace millrace
