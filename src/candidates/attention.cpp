#include <algorithm>

#include "candidates/candidates.h"

namespace millrace {
namespace {

constexpr int64_t kTileRows = 16;  // rows that the tensor cores take

}  // namespace

int64_t rows_of_block(const AttentionConfig& config) { return kTileRows * config.warps * config.row_tiles; }

// Of a stage: two panels, whose rows, or columns where these lie together, are 16 bytes apart from each other so that
// they are in different banks, and in backward two floats a row, and bits for the block's own rows. For products of
// groups no line is apart from the next, and stages are of whole blocks. Beside the stages: the block's own rows,
// where these are not in registers; where it has all keys, these and a panel's gradients, and two floats for every
// query instead. As codegen/prelude/cuda_attention.h has it, which checks that.
int64_t attention_shared_bytes(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kBlock = 1024;
  constexpr int64_t kPair = 8;
  const int64_t apart = config.wgmma ? 0 : 16;
  const auto panel = [&](int64_t rows, int64_t columns) {
    return kHalf * rows * columns + apart * std::max(rows, columns);
  };
  const auto whole = [](int64_t extent, int64_t step) { return (extent + step - 1) / step * step; };
  const int64_t bits = attention.mask.valid() ? 2 * config.warps * config.row_tiles : 0;
  const bool all_keys = config.single_kernel && attention.backward;
  const int64_t beside = attention.backward ? config.tile_columns * ((all_keys ? 0 : kPair) + bits) : 0;
  const int64_t stage =
      panel(config.tile_columns, attention.inner) + panel(config.tile_columns, attention.values) + beside;
  const int64_t stages = config.stages * (config.wgmma ? whole(stage, kBlock) : stage);
  const int64_t rows = rows_of_block(config);
  const int64_t own = panel(rows, attention.inner) + (attention.backward ? panel(rows, attention.values) : 0);
  const int64_t kept = config.rows_in_smem ? own : all_keys ? panel(rows, attention.inner) : 0;
  return stages + kept +
         (all_keys ? panel(rows, config.tile_columns) + whole(attention.queries, config.tile_columns) * kPair : 0);
}

bool can_be_single_kernel(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kMostQueries = 1024;  // of which a block keeps two floats each
  constexpr int64_t kGroupColumns = 32;
  const int64_t tiles = config.tile_columns / kTileRows;  // of queries
  const int64_t shares = std::max<int64_t>(1, config.warps / tiles);
  const int64_t columns = config.wgmma ? kGroupColumns : kTileRows;
  return attention.backward && config.wgmma == config.rows_in_smem && rows_of_block(config) >= attention.keys &&
         attention.queries <= kMostQueries && tiles * shares % config.warps == 0 &&
         attention.inner % (shares * columns) == 0;
}

}  // namespace millrace
