#include "codegen/cuda/attention_blocks.h"

#include <algorithm>

#include "ir/attention_columns.h"

namespace millrace {
namespace {

// An estimate for a thread: fragments of rows, accumulators and scores, plus an overhead as seen from ptxas.
int64_t registers(const Attention& attention, const AttentionConfig& config, OwnedRows rows) {
  constexpr int64_t kOverhead = 48;
  constexpr int64_t kWgmmaOverhead = 40;
  constexpr int64_t kRowsInSmemOverhead = 32;
  const int64_t inner = padded_columns(attention.inner);
  const int64_t values = padded_columns(attention.values);
  if (config.wgmma && attention.backward) {
    const int64_t scores = rows == OwnedRows::queries ? 64 - values / 2 : 32;
    if (config.rows_in_smem) return (inner + values) / 2 + scores + kRowsInSmemOverhead;
    return config.row_tiles * (3 * (inner + values) / 4 + scores) + kWgmmaOverhead;
  }
  const int64_t fragments = !attention.backward
                                ? (config.rows_in_smem ? 0 : inner / 4) + values / 2 + config.tile_columns / 2
                            : rows == OwnedRows::queries ? 3 * inner / 4 + values / 4 + 16
                                                         : 3 * (inner + values) / 4 + 16;
  return config.row_tiles * fragments + kOverhead + (attention.is_plain() ? 0 : 8);
}

}  // namespace

int64_t resident_blocks(const Attention& attention, const AttentionConfig& config, OwnedRows rows) {
  if (config.specialized) return 1;
  constexpr int64_t kRegisters = 65536;  // of a multiprocessor
  constexpr int64_t kMaxThreadRegisters = 255;
  constexpr int64_t kSmem = 228 << 10;
  constexpr int64_t kReservedSmem = 1024;  // for every block
  constexpr int64_t kThreads = 1536;       // of the smallest multiprocessor that we support
  const int64_t threads = threads_of_block(config);
  const int64_t by_registers =
      kRegisters / (threads * std::min(registers(attention, config, rows), kMaxThreadRegisters));
  const int64_t by_smem = kSmem / (attention_shared_bytes(attention, config) + kReservedSmem);
  return std::max<int64_t>(1, std::min({by_registers, by_smem, kThreads / threads}));
}

int64_t heads_together(const Attention& attention, int64_t heads) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kShareOfL2 = int64_t{24} << 20;
  const int64_t rows = std::max(attention.queries, attention.keys);
  const int64_t fit = std::max<int64_t>(1, kShareOfL2 / (kHalf * rows * (attention.inner + attention.values)));
  int64_t together = std::min(heads, fit);
  while (heads % together != 0) --together;
  return together;
}

// The two accumulators leave registers for two warpgroups only.
AttentionConfig dk_dv_config(AttentionConfig config) {
  constexpr int kWarps = 8;
  if (config.specialized) config.warps = kWarps;
  return config;
}

// A block has many queries, so that few blocks read a tile of keys. Tiles of the next head are in shared memory too if
// they fit the smallest that we support.
AttentionConfig d_term_config(const Attention& attention) {
  constexpr int64_t kNarrow = 64;
  constexpr int64_t kFewQueries = 64;
  const bool narrow = std::max(padded_columns(attention.inner), padded_columns(attention.values)) <= kNarrow;
  return narrow ? AttentionConfig{attention.queries > kFewQueries ? 8 : 4, 1, 64, 2} : AttentionConfig{4, 1, 64, 1};
}

int64_t d_term_smem_bytes(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kPadding = 16;
  int64_t stage = 0;
  for (const int64_t columns : {padded_columns(attention.inner), padded_columns(attention.values)}) {
    for (const int64_t rows : {int64_t{config.tile_columns}, rows_of_block(config)})
      stage += kHalf * rows * columns + kPadding * std::max(rows, columns);
  }
  return config.stages * stage;
}

}  // namespace millrace
