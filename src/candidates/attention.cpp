#include "candidates/candidates.h"

namespace millrace {

// Of a stage: two panels, whose rows are 16 bytes apart from each other so that they are in different banks, and in
// backward two floats a row. As codegen/prelude/cuda_attention.h has it, which checks that.
int64_t attention_shared_bytes(const Attention& attention, const AttentionWay& way) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kApart = 16;
  const int64_t row = kHalf * (attention.inner + attention.values) + 2 * kApart + (attention.backward ? 8 : 0);
  return way.stages * way.panel * row;
}

}  // namespace millrace
