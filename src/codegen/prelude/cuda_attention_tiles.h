// Fused attention: tiles of operands in smem, the layout of smem, and the cp.async pipeline over tiles.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// Bytes from line to line: an odd multiple of 16, so that ldmatrix and stmatrix touch different banks.
template <int kLength>
constexpr int kPaddedPitch = 2 * kLength + 16;

// kRows x kColumns of an operand in smem, in the order of global memory. A line is the contiguous direction: a row, or
// a column if col_major. Lines are padded by 16 bytes; for wgmma they are cut into runs of 64 halves and swizzled.
template <class S, int kRows, int kColumns, Order kOwnOrder>
struct SmemTile {
  static constexpr Order kOrder = kOwnOrder;
  static constexpr int kLines = kOrder == Order::row_major ? kRows : kColumns;
  static constexpr int kLength = kOrder == Order::row_major ? kColumns : kRows;
  SmemAddress base;

  // Bytes from `base` to an element; for wgmma, before swizzling.
  MR_DEVICE static constexpr int offset(int line, int element) {
    if constexpr (S::kWgmma) return (element / 64 * kLines + line) * static_cast<int>(kSwizzleBytes) + element % 64 * 2;
    return line * kPaddedPitch<kLength> + element * 2;
  }
  // The same by row and column. It is also the distance between two elements, if adding it does not leave the line.
  MR_DEVICE static constexpr int offset_at(int row, int column) {
    return kOrder == Order::row_major ? offset(row, column) : offset(column, row);
  }
  MR_DEVICE SmemAddress address(int row, int column) const { return base + offset_at(row, column); }
};

template <class S, int kRows, int kColumns>
constexpr int kTileBytes = 2 * kRows* kColumns + (S::kWgmma ? 0 : 16 * (kRows < kColumns ? kColumns : kRows));

// A stage of the pipeline, in this order, and for wgmma a multiple of 1024 bytes:
// - a tile of kInner columns and one of kValues columns, kTileColumns rows each;
// - backward: two floats of RowStats for each row, unless kSingleKernel keeps those of all queries outside the stages;
// - backward with dropout: for each row, the mask bits of the block's rows.
template <class S>
constexpr int kSecondTileOffset = kTileBytes<S, S::kTileColumns, S::kInner>;
template <class S>
constexpr int kBothTilesBytes = kSecondTileOffset<S> + kTileBytes<S, S::kTileColumns, S::kValues>;
template <class S>
constexpr int kRowStatsOffset = kBothTilesBytes<S>;
template <class S>
constexpr int kMaskBitsOffset = kRowStatsOffset<S> + (S::kSingleKernel ? 0 : S::kTileColumns * 8);
template <class S>
constexpr int kMaskRowBytes = S::kWarps* S::kRowTiles * 2;
template <class S>
constexpr int kStageUsedBytes =
    !S::kBackward ? kBothTilesBytes<S> : kMaskBitsOffset<S> + (S::kDropout ? S::kTileColumns * kMaskRowBytes<S> : 0);
template <class S>
constexpr int kStageBytes = S::kWgmma ? (kStageUsedBytes<S> + 1023) / 1024 * 1024 : kStageUsedBytes<S>;

// Rows of the score matrix that a block computes.
template <class S>
constexpr int kBlockRows = S::kWarps* S::kRowTiles * 16;

// No block and no tile is partial: bounds need no checks.
template <class S>
constexpr bool kExactTiling = S::kQueries % kBlockRows<S> == 0 && S::kKeys % kBlockRows<S> == 0 &&
                              S::kQueries % S::kTileColumns == 0 && S::kKeys % S::kTileColumns == 0;

// Warp specialization (kSpecialized): a warpgroup after the kWarps others only copies. These threads copy tiles.
constexpr int kProducers = 128;
template <class S>
constexpr int kCopyThreads = S::kSpecialized ? kProducers : 32 * S::kWarps;
template <class S>
MR_DEVICE int copy_thread() {
  if constexpr (S::kSpecialized) return assume_non_negative(thread_id() - 32 * S::kWarps);
  return thread_id();
}

// A barrier of the threads that multiply.
template <class S>
MR_DEVICE void consumer_barrier() {
  if constexpr (S::kSpecialized) {
    named_barrier(1, 32 * S::kWarps);
  } else {
    barrier();
  }
}

// After the stages:
// - with kRowsInSmem: the block's rows of kInner columns, and in backward those of kValues columns; with kSingleKernel
//   at least the first (they are all keys);
// - with kSingleKernel: the gradients of a tile of scores, a line for each key, and the RowStats of all queries;
// - with kSpecialized: the mbarriers of the rows, and four for each stage.
template <class S>
constexpr int kRowsOffset = S::kStages* kStageBytes<S>;
template <class S>
constexpr int kSecondRowsOffset = kRowsOffset<S> + kTileBytes<S, kBlockRows<S>, S::kInner>;
template <class S>
constexpr int kScoreGradientsOffset =
    !S::kRowsInSmem && !S::kSingleKernel ? kRowsOffset<S>
    : S::kRowsInSmem && S::kBackward     ? kSecondRowsOffset<S> + kTileBytes<S, kBlockRows<S>, S::kValues>
                                         : kSecondRowsOffset<S>;
template <class S>
constexpr int kAllRowStatsOffset = kScoreGradientsOffset<S> +
                                   (S::kSingleKernel ? kTileBytes<S, kBlockRows<S>, S::kTileColumns> : 0);
template <class S>
constexpr int kBarriersOffset = kAllRowStatsOffset<S> + (S::kSingleKernel ? (S::kQueries + S::kTileColumns - 1) /
                                                                                S::kTileColumns * S::kTileColumns * 8
                                                                          : 0);
template <class S>
constexpr int kSmemBytes = kBarriersOffset<S> + (S::kSpecialized ? (4 * S::kStages + 1) * kMbarrierBytes : 0);

// Order of the keys in the rows of a tile; cuda_attention.h says why they are permuted.
enum class RowOrder { in_order, permuted };

template <RowOrder kRowOrder>
MR_DEVICE int permuted_row(int row) {
  if constexpr (kRowOrder == RowOrder::in_order) return row;
  return row / 32 * 32 + row % 8 / 2 * 8 + row / 8 % 4 * 2 + row % 2;
}

// Address in a tile of two offsets that have no bit in common. Swizzling can be applied to each separately, so the part
// that is a compile-time constant stays one.
template <class S>
MR_DEVICE SmemAddress tile_address(SmemAddress tile, int offset, int other) {
  if constexpr (S::kWgmma) return tile + (swizzle(offset) ^ swizzle(other));
  return tile + offset + other;
}

// Copies rows [first, first + kRows) of an operand to smem by cp.async. Rows from `count` on, and columns that it does
// not have, become zeros and are not read.
template <class S, int kRows, int kColumns, RowOrder kRowOrder, class M>
MR_DEVICE void copy_tile(SmemAddress to, const M& from, int first, int count) {
  using To = SmemTile<S, kRows, kColumns, M::kOrder>;
  constexpr bool kRowMajor = M::kOrder == Order::row_major;
  static_assert(kRowMajor || kRowOrder == RowOrder::in_order);
  constexpr int kChunks = To::kLength / 8;
  constexpr int kThreads = kCopyThreads<S>;
  constexpr int kLinesPerPass = kThreads / kChunks;
  if constexpr (kLinesPerPass * kChunks == kThreads && (kLinesPerPass & (kLinesPerPass - 1)) == 0) {
    // kLinesPerPass is a power of two: the bits of a line number that vary between passes differ from those that vary
    // between threads. So every address is that of the first pass plus a constant.
    const int line = copy_thread<S>() / kChunks;
    const int chunk = copy_thread<S>() % kChunks;
    const int own = To::offset(permuted_row<kRowOrder>(line), chunk * 8);
    const int row = first + (kRowMajor ? line : chunk * 8);
    const auto* own_from = from.at(row, kRowMajor ? chunk * 8 : line);
    MR_UNROLL
    for (int n = 0; n < To::kLines; n += kLinesPerPass) {
      if (To::kLines % kLinesPerPass == 0 || n + line < To::kLines)
        cp_async_16(tile_address<S>(to, own, To::offset(permuted_row<kRowOrder>(n), 0)), own_from,
                    row + (kRowMajor ? n : 0) < count && M::template has<kColumns>(kRowMajor ? chunk * 8 : n + line));
      own_from += kLinesPerPass * from.pitch;
    }
  } else {
    MR_UNROLL
    for (int n = 0; n < To::kLines * kChunks; n += kThreads) {
      const int line = (n + copy_thread<S>()) / kChunks;
      const int chunk = (n + copy_thread<S>()) % kChunks;
      const int row = first + (kRowMajor ? line : chunk * 8);
      if (line < To::kLines)
        cp_async_16(tile_address<S>(to, To::offset(permuted_row<kRowOrder>(line), chunk * 8), 0),
                    from.at(row, kRowMajor ? chunk * 8 : line),
                    row < count && M::template has<kColumns>(kRowMajor ? chunk * 8 : line));
    }
  }
}

// The same for rows that are computed.
template <class S, int kRows, int kColumns, RowOrder kRowOrder, class M>
MR_DEVICE void compute_tile(SmemAddress to, const M& from, int first, int count);

template <class S, int kRows, int kColumns, RowOrder kRowOrder, class M>
MR_DEVICE void fetch_tile(SmemAddress to, const M& from, int first, int count) {
  if constexpr (M::kComputed)
    compute_tile<S, kRows, kColumns, kRowOrder>(to, from, first, count);
  else
    copy_tile<S, kRows, kColumns, kRowOrder>(to, from, first, count);
}

// Software pipeline over tiles [first, end) with kStages smem stages: fetch(tile, stage) starts the copies of a tile
// kStages - 1 tiles before work(tile, stage) consumes it.
template <class S, class Fetch>
struct TilePipeline {
  int first;
  int end;
  const Fetch& fetch;
  SmemAddress smem = smem_base();

  MR_DEVICE TilePipeline(int first_tile, int end_tile, const Fetch& fetch_tile)
      : first(first_tile), end(end_tile), fetch(fetch_tile) {
    // Prologue: these copies run while the block loads its rows.
    MR_UNROLL
    for (int ahead = 0; ahead < S::kStages - 1; ++ahead) {
      if (first + ahead < end) fetch(first + ahead, smem + ahead * kStageBytes<S>);
      cp_async_commit();
    }
  }

  template <class Work>
  MR_DEVICE void for_each(const Work& work) const {
    int stage = 0;
    MR_NO_UNROLL
    for (int tile = first; tile < end; ++tile) {
      if constexpr (S::kStages == 1) {
        barrier();
        fetch(tile, smem);
        cp_async_commit();
        cp_async_wait<0>();
        if constexpr (S::kWgmma) fence_async_proxy();
        barrier();
      } else {
        cp_async_wait<S::kStages - 2>();
        if constexpr (S::kWgmma) fence_async_proxy();
        barrier();
        const int ahead = tile + S::kStages - 1;
        const int free = stage == 0 ? S::kStages - 1 : stage - 1;
        if (ahead < end) fetch(ahead, smem + free * kStageBytes<S>);
        cp_async_commit();
      }
      work(tile, smem + stage * kStageBytes<S>);
      stage = stage == S::kStages - 1 ? 0 : stage + 1;
    }
  }
};
template <class S, class Fetch>
MR_DEVICE TilePipeline<S, Fetch> make_pipeline(int first, int end, const Fetch& fetch) {
  return TilePipeline<S, Fetch>(first, end, fetch);
}

}  // namespace mr
