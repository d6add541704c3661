#include <algorithm>
#include <functional>
#include <numeric>

#include "candidates/candidates.h"
#include "ir/attention_columns.h"

namespace millrace {
namespace {

constexpr int64_t kTileRows = 16;  // rows of a tensor-core tile
constexpr int kWarpThreads = 32;
constexpr int64_t kPair = 8;  // bytes of two floats

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

namespace {

constexpr int64_t kHalf = 2;  // bytes

int64_t rounded_up(int64_t extent, int64_t step) { return (extent + step - 1) / step * step; }

int64_t tile_bytes(const AttentionConfig& config, int64_t rows, int64_t columns) {
  const int64_t padding = config.wgmma ? 0 : 16;
  return kHalf * rows * columns + padding * std::max(rows, columns);
}

// A stage has two tiles. Their lines (rows, or columns if those are contiguous) are padded by 16 bytes, so that they
// are in different banks. In backward a stage also has two floats per row, and mask bits for the block's own rows. For
// wgmma lines are not padded, and stages are rounded up to 1024 bytes.
int64_t stage_bytes(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kStageAlignment = 1024;
  const int64_t bits = attention.mask.valid() ? 2 * config.warps * config.row_tiles : 0;
  const bool all_keys = config.single_kernel && attention.backward;
  const int64_t row_data = attention.backward ? config.tile_columns * ((all_keys ? 0 : kPair) + bits) : 0;
  const int64_t stage = tile_bytes(config, config.tile_columns, padded_columns(attention.inner)) +
                        tile_bytes(config, config.tile_columns, padded_columns(attention.values)) + row_data;
  return config.wgmma ? rounded_up(stage, kStageAlignment) : stage;
}

}  // namespace

int threads_of_block(const AttentionConfig& config) {
  constexpr int kProducerWarps = 4;
  return kWarpThreads * (config.warps + (config.specialized ? kProducerWarps : 0));
}

// Shared memory also holds the block's own rows, unless they are in registers. A block that owns all keys has these,
// the gradients of a tile, and two floats for every query instead of those in stages. A specialized kernel has
// mbarriers too. codegen/prelude/cuda_attention.h lays memory out like this, and checks it.
int64_t attention_shared_bytes(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kMbarrier = 8;
  const int64_t inner = padded_columns(attention.inner);
  const bool all_keys = config.single_kernel && attention.backward;
  const int64_t rows = rows_of_block(config);
  const int64_t own = tile_bytes(config, rows, inner) +
                      (attention.backward ? tile_bytes(config, rows, padded_columns(attention.values)) : 0);
  const int64_t kept = config.rows_in_smem ? own : all_keys ? tile_bytes(config, rows, inner) : 0;
  return config.stages * stage_bytes(attention, config) + kept +
         (all_keys ? tile_bytes(config, rows, config.tile_columns) +
                         rounded_up(attention.queries, config.tile_columns) * kPair
                   : 0) +
         (config.specialized ? (4 * config.stages + 1) * kMbarrier : 0);
}

// A warp computes 8 rows at a time in its share of a stage, and stores 8 from its share of all stages, as floats.
std::optional<std::string> why_not_with_rows(const Attention& attention, const AttentionConfig& config) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kFloat = 4;
  if (!attention.has_row_expressions()) return std::nullopt;
  if (config.specialized) return "computed rows: specialized warps copy tiles and have no registers to compute them";
  if (config.single_kernel) return "computed rows: in one kernel, the columns of a gradient's row are in several warps";
  if (config.wgmma && !config.rows_in_smem) return "computed rows: with wgmma they are in shared memory";
  const int64_t inner = padded_columns(attention.inner);
  const int64_t share = stage_bytes(attention, config) / config.warps / 16 * 16;
  const int64_t of_all = config.stages * stage_bytes(attention, config) / config.warps / 16 * 16;
  const bool loads = !config.rows_in_smem && kRows * (kHalf * inner + 16) > share;
  const bool stores = attention.backward && kRows * (kFloat * inner + 32) > of_all;
  if (loads || stores) return "computed rows that do not fit a warp's share of the stages";
  return std::nullopt;
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
