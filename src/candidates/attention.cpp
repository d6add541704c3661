#include <algorithm>
#include <functional>
#include <numeric>

#include "candidates/candidates.h"
#include "ir/attention_columns.h"

namespace millrace {
namespace {

constexpr int64_t kTileRows = 16;  // rows of a tensor-core tile
constexpr int kWarpThreads = 32;

}  // namespace

int64_t Attention::heads() const {
  return std::accumulate(batch.begin(), batch.end(), int64_t{1}, std::multiplies<>());
}

int64_t Attention::heads_per_group() const {
  int64_t count = 1;
  for (size_t index = 0; index < batch.size(); ++index) count *= is_group(index) ? batch[index] : 1;
  return count;
}

int64_t Attention::columns(Operand operand) const {
  const bool is_inner = operand == q || operand == k || operand == d_q || operand == d_k;
  return operand == log_sums ? 1 : is_inner ? inner : values;
}

size_t position_of(const Partition& partition, Attention::Operand operand) {
  const bool written = partition.attention.writes(operand);
  const std::vector<TensorId>& list = written ? partition.writes : partition.reads;
  const auto at = std::find(list.begin(), list.end(), partition.attention.tensors[operand]) - list.begin();
  return static_cast<size_t>(at) + (written ? partition.reads.size() : 0);
}

int64_t rows_of_block(const AttentionConfig& config) { return kTileRows * config.warps * config.row_tiles; }

int threads_of_block(const AttentionConfig& config) {
  constexpr int kProducerWarps = 4;
  return kWarpThreads * (config.warps + (config.specialized ? kProducerWarps : 0));
}

// A stage has two tiles. Their lines (rows, or columns if those are contiguous) are padded by 16 bytes, so that they
// are in different banks. In backward a stage also has two floats per row, and mask bits for the block's own rows. For
// wgmma lines are not padded, and stages are rounded up to 1024 bytes. Besides the stages: the block's own rows, if
// these are not in registers; if it owns all keys, these, the gradients of a tile, and two floats for every query
// instead of those in stages; the mbarriers of a specialized kernel. codegen/prelude/cuda_attention.h lays memory out
// like this, and checks it.
int64_t attention_shared_bytes(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kHalf = 2;
  constexpr int64_t kStageAlignment = 1024;
  constexpr int64_t kPair = 8;  // two floats
  constexpr int64_t kMbarrier = 8;
  const int64_t inner = padded_columns(attention.inner);
  const int64_t values = padded_columns(attention.values);
  const int64_t padding = config.wgmma ? 0 : 16;
  const auto tile = [&](int64_t rows, int64_t columns) {
    return kHalf * rows * columns + padding * std::max(rows, columns);
  };
  const auto rounded_up = [](int64_t extent, int64_t step) { return (extent + step - 1) / step * step; };
  const int64_t bits = attention.mask.valid() ? 2 * config.warps * config.row_tiles : 0;
  const bool all_keys = config.single_kernel && attention.backward;
  const int64_t row_data = attention.backward ? config.tile_columns * ((all_keys ? 0 : kPair) + bits) : 0;
  const int64_t stage = tile(config.tile_columns, inner) + tile(config.tile_columns, values) + row_data;
  const int64_t stages = config.stages * (config.wgmma ? rounded_up(stage, kStageAlignment) : stage);
  const int64_t rows = rows_of_block(config);
  const int64_t own = tile(rows, inner) + (attention.backward ? tile(rows, values) : 0);
  const int64_t kept = config.rows_in_smem ? own : all_keys ? tile(rows, inner) : 0;
  return stages + kept +
         (all_keys ? tile(rows, config.tile_columns) + rounded_up(attention.queries, config.tile_columns) * kPair : 0) +
         (config.specialized ? (4 * config.stages + 1) * kMbarrier : 0);
}

bool can_be_single_kernel(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kMostQueries = 1024;  // a block keeps two floats for each
  constexpr int64_t kWgmmaColumns = 32;
  const int64_t tiles = config.tile_columns / kTileRows;  // of queries
  const int64_t shares = std::max<int64_t>(1, config.warps / tiles);
  const int64_t columns = config.wgmma ? kWgmmaColumns : kTileRows;
  if (attention.window || attention.has_score_expression()) return false;
  return attention.backward && attention.has_all_gradients() && attention.heads_per_group() == 1 &&
         config.wgmma == config.rows_in_smem && rows_of_block(config) >= attention.keys &&
         attention.queries <= kMostQueries && tiles * shares % config.warps == 0 &&
         attention.inner % (shares * columns) == 0;
}

}  // namespace millrace
