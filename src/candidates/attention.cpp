#include <algorithm>

#include "candidates/candidates.h"

namespace millrace {

// Of a stage: two panels, whose rows, or columns where these lie together, are 16 bytes apart from each other so that
// they are in different banks, and in backward two floats a row, and bits for the block's own rows. For products of
// groups no line is apart from the next, and stages are of whole blocks. As codegen/prelude/cuda_attention.h has it,
// which checks that.
int64_t attention_shared_bytes(const Attention& attention, const AttentionWay& way) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kBlock = 1024;
  const int64_t apart = way.groups ? 0 : 16;
  const auto panel = [&](int64_t columns) {
    return kHalf * way.panel * columns + apart * std::max<int64_t>(way.panel, columns);
  };
  const int64_t bits = attention.mask.valid() ? 2 * way.warps * way.tiles : 0;
  const int64_t beside = attention.backward ? way.panel * (8 + bits) : 0;
  const int64_t stage = panel(attention.inner) + panel(attention.values) + beside;
  return way.stages * (way.groups ? (stage + kBlock - 1) / kBlock * kBlock : stage);
}

}  // namespace millrace
