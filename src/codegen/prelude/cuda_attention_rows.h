// Fused attention: a warp's rows, from global memory to fragments or smem, and the epilogue that stores results.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// Row and column of the two neighbouring elements that a thread loads from an 8 x 8 matrix in global memory: as in a
// fragment; if col_major, transposed.
template <Order kOrder>
MR_DEVICE int fragment_row_in() {
  return kOrder == Order::row_major ? fragment_row() : fragment_column();
}
template <Order kOrder>
MR_DEVICE int fragment_column_in() {
  return kOrder == Order::row_major ? fragment_column() : fragment_row();
}
template <Order kOrder>
MR_DEVICE u32 as_fragment(u32 neighbours) {
  if constexpr (kOrder == Order::col_major) return movmatrix_trans(neighbours);
  return neighbours;
}

// 16 bytes from global memory; zeros out of bounds.
MR_DEVICE void load_global_16(u32 (&to)[4], const void* from, bool in_bounds) {
  Elements<u32, 4, 1, 16> chunk;
  if (in_bounds) chunk.load(static_cast<const u32*>(from), 0);
  MR_UNROLL
  for (int n = 0; n < 4; ++n) to[n] = in_bounds ? chunk.data.elements[n] : 0;
}
MR_DEVICE void store_global_16(void* to, const u32 (&from)[4]) {
  Elements<u32, 4, 1, 16> chunk;
  MR_UNROLL
  for (int n = 0; n < 4; ++n) chunk.data.elements[n] = from[n];
  chunk.store(static_cast<u32*>(to), 0);
}

// A warp's share of a stage that holds no tile: the last stage before the first tile is consumed, any stage after the
// barrier that follows the last tile. With kSpecialized: of all stages, after the last tile.
template <class S>
struct WarpScratch {
  static constexpr int kBytes = (S::kSpecialized ? S::kStages : 1) * kStageBytes<S> / S::kWarps / 16 * 16;
  SmemAddress base;

  MR_DEVICE explicit WarpScratch(SmemAddress stage) : base(stage + warp_id() * kBytes) {}
};
template <class S>
MR_DEVICE SmemAddress last_stage() {
  return smem_base() + (S::kStages - 1) * kStageBytes<S>;
}

// A warp's rows in its scratch, in the order of global memory: global accesses are 16-byte chunks, fragments go through
// ldmatrix and stmatrix.
template <class S, int kColumns, Order kOrder>
struct SmemTransfer {
  static constexpr int kRows = S::kRowTiles * 16;
  static constexpr int kLines = kOrder == Order::row_major ? kRows : kColumns;
  static constexpr int kChunks = (kOrder == Order::row_major ? kColumns : kRows) / 8;  // 16-byte chunks of a line
  static constexpr int kLinesPerPass = 32 / kChunks;                                   // that a warp moves
  // Short lines are not padded: they have few bank conflicts.
  static constexpr int kPitchBytes = kChunks < 8 ? kChunks * 16 : kPaddedPitch<kChunks * 8>;
  static constexpr int kBytes = kLines * kPitchBytes;
  // Otherwise rows are moved word by word.
  static constexpr bool kFits =
      (kChunks & (kChunks - 1)) == 0 && kLines % kLinesPerPass == 0 && kBytes <= WarpScratch<S>::kBytes;
  SmemAddress base;

  MR_DEVICE SmemAddress at(int line, int chunk) const { return base + line * kPitchBytes + chunk * 16; }
  // The chunk that a thread moves in pass 0, and its distance to that of pass n.
  MR_DEVICE static int line() { return lane_id() / kChunks; }
  MR_DEVICE static int chunk() { return lane_id() % kChunks; }
  MR_DEVICE static int row() { return kOrder == Order::row_major ? line() : chunk() * 8; }
  MR_DEVICE static int column() { return kOrder == Order::row_major ? chunk() * 8 : line(); }
  MR_DEVICE static constexpr int rows(int n) { return kOrder == Order::row_major ? n * kLinesPerPass : 0; }
  MR_DEVICE static constexpr int columns(int n) { return kOrder == Order::row_major ? 0 : n * kLinesPerPass; }
  MR_DEVICE SmemAddress chunk_address(int n) const { return at(n * kLinesPerPass + line(), chunk()); }
  // The row address that a lane passes for an A fragment: the second of its four 8 x 8 matrices has the next 8 rows,
  // the third the next 8 columns.
  MR_DEVICE SmemAddress matrix_row(int row_tile, int step) const {
    const int rows = lane_id() / 8 % 2;
    const int columns = lane_id() / 16;
    if constexpr (kOrder == Order::row_major) return at(row_tile * 16 + rows * 8 + lane_id() % 8, step * 2 + columns);
    return at(step * 16 + columns * 8 + lane_id() % 8, row_tile * 2 + rows);
  }
};

// A warp's rows [first, first + 16 kRowTiles), A operands; zeros from `count` on. `load` starts early, `to_fragments`
// waits for the data.
template <class S, int kColumns, class M, bool kComputed = M::kComputed>
struct PrefetchedRows {
  using Transfer = SmemTransfer<S, kColumns, M::kOrder>;
  static constexpr int kCount = S::kRowTiles * (kColumns / 16);
  u32 words[kCount][4];

  MR_DEVICE void load(const M& from, int first, int count) {
    if constexpr (Transfer::kFits) {
      const int row = first + Transfer::row();
      const auto* const own = from.at(row, Transfer::column());
      MR_UNROLL
      for (int n = 0; n < kCount; ++n)
        load_global_16(words[n], from.advance(own, Transfer::rows(n), Transfer::columns(n)),
                       (kExactTiling<S> || row + Transfer::rows(n) < count) &&
                           M::template has<kColumns>(Transfer::column() + Transfer::columns(n)));
    } else {
      const int row = first + fragment_row_in<M::kOrder>();
      const auto* const own = from.at(row, fragment_column_in<M::kOrder>());
      MR_UNROLL
      for (int n = 0; n < kCount * 4; ++n) {
        const int rows = n / 4 / (kColumns / 16) * 16 + n % 2 * 8;
        const int columns = n / 4 % (kColumns / 16) * 16 + n % 4 / 2 * 8;
        const bool in_bounds = (kExactTiling<S> || row + rows < count) &&
                               M::template has<kColumns>(columns + fragment_column_in<M::kOrder>());
        words[n / 4][n % 4] = in_bounds ? *reinterpret_cast<const u32*>(from.advance(own, rows, columns)) : 0;
      }
    }
  }

  MR_DEVICE void to_fragments(u32 (&to)[S::kRowTiles][kColumns / 16][4]) const {
    if constexpr (Transfer::kFits) {
      const Transfer transfer{WarpScratch<S>(last_stage<S>()).base};
      warp_barrier();
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) store_smem_u32x4(transfer.chunk_address(n), words[n]);
      warp_barrier();
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) {
        const int row_tile = n / (kColumns / 16);
        const int step = n % (kColumns / 16);
        if constexpr (M::kOrder == Order::row_major) {
          ldmatrix_x4(to[row_tile][step], transfer.matrix_row(row_tile, step));
        } else {
          ldmatrix_x4_trans(to[row_tile][step], transfer.matrix_row(row_tile, step));
        }
      }
    } else {
      MR_UNROLL
      for (int n = 0; n < kCount * 4; ++n)
        to[n / 4 / (kColumns / 16)][n / 4 % (kColumns / 16)][n % 4] = as_fragment<M::kOrder>(words[n / 4][n % 4]);
    }
  }
};

// The block's rows: the A operand of every tile. Each warp holds its own as fragments; with kRowsInSmem, all are in
// smem for wgmma, from `base` on. Call `fetch` before the pipeline starts, so that waiting for the first
// tile also waits for the rows; call `finish` after. A negative scale is applied here, by negating the rows.
template <class S, int kColumns, class M, bool kInSmem = S::kRowsInSmem>
struct ResidentRows {
  PrefetchedRows<S, kColumns, M> loaded;
  u32 fragments[S::kRowTiles][kColumns / 16][4];

  MR_DEVICE void fetch(SmemAddress, const M& from, int block, int count) {
    loaded.load(from, warp_first_row<S>(block), count);
  }
  MR_DEVICE void finish(double scale) {
    loaded.to_fragments(fragments);
    const u32 signs = scale < 0 ? 0x80008000u : 0;
    MR_UNROLL
    for (int n = 0; n < S::kRowTiles * (kColumns / 16) * 4; ++n)
      fragments[n / 4 / (kColumns / 16)][n / 4 % (kColumns / 16)][n % 4] ^= signs;
  }
};
template <class S, int kColumns, class M>
struct ResidentRows<S, kColumns, M, true> {
  using Rows = SmemTile<S, kBlockRows<S>, kColumns, M::kOrder>;
  static_assert(S::kWgmma);
  SmemAddress base;
  SmemDescriptor warpgroup_rows;  // the 64 rows of this warpgroup

  MR_DEVICE void fetch(SmemAddress to, const M& from, int block, int count) {
    place(to);
    copy(from, block, count);
  }
  MR_DEVICE void place(SmemAddress to) {
    base = to;
    warpgroup_rows = make_descriptor(Rows{to}.address(S::kWarps == 4 ? 0 : warp_uniform(warp_id() / 4 * 64), 0));
  }
  MR_DEVICE void copy(const M& from, int block, int count) const {
    fetch_tile<S, kBlockRows<S>, kColumns, RowOrder::in_order>(base, from, block * kBlockRows<S>, count);
  }
  MR_DEVICE void finish(double scale) {
    if (scale >= 0) return;
    if constexpr (!S::kSpecialized) {
      cp_async_commit();
      cp_async_wait<0>();
      barrier();
    }
    MR_NO_UNROLL
    for (int word = thread_id(); word < kBlockRows<S> * kColumns / 2; word += 32 * S::kWarps)
      store_smem_u32(base + word * 4, load_smem_u32(base + word * 4) ^ 0x80008000u);
    if constexpr (S::kSpecialized) {
      fence_async_proxy();
      consumer_barrier<S>();
    }
  }
  MR_DEVICE SmemDescriptor a_descriptor(int column) const {
    return warpgroup_rows.advanced(Rows::offset_at(0, column));
  }
};

// Epilogue: rounds accumulators times a factor for each row, and stores a warp's rows [first, ...) up to `count`.
template <class S, int kColumns, class M>
MR_DEVICE void store_rows(const WarpScratch<S>& scratch, const M& to, int first, int count,
                          const float (&c)[S::kRowTiles][kColumns / 8][4], const float (&factors)[S::kRowTiles][2]) {
  using Transfer = SmemTransfer<S, kColumns, M::kOrder>;
  constexpr int kCount = S::kRowTiles * (kColumns / 16);
  const Transfer transfer{scratch.base};
  const int row = first + fragment_row_in<M::kOrder>();
  auto* const own = to.at(row, fragment_column_in<M::kOrder>());
  if constexpr (Transfer::kFits) warp_barrier();
  MR_UNROLL
  for (int n = 0; n < kCount; ++n) {
    const int row_tile = n / (kColumns / 16);
    const int step = n % (kColumns / 16);
    u32 fragments[4];
    MR_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float(&acc)[4] = c[row_tile][2 * step + k / 2];
      const float factor = factors[row_tile][k % 2];
      fragments[k] = pack_halves<typename S::T>(acc[k % 2 * 2] * factor, acc[k % 2 * 2 + 1] * factor);
    }
    if constexpr (!Transfer::kFits) {
      MR_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int rows = row_tile * 16 + k % 2 * 8;
        const u32 neighbours = as_fragment<M::kOrder>(fragments[k]);
        const int columns = step * 16 + k / 2 * 8;
        if ((kExactTiling<S> || row + rows < count) &&
            M::template has<kColumns>(columns + fragment_column_in<M::kOrder>()))
          *reinterpret_cast<u32*>(to.advance(own, rows, columns)) = neighbours;
      }
    } else if constexpr (M::kOrder == Order::row_major) {
      stmatrix_x4(transfer.matrix_row(row_tile, step), fragments);
    } else {
      stmatrix_x4_trans(transfer.matrix_row(row_tile, step), fragments);
    }
  }
  if constexpr (Transfer::kFits) {
    warp_barrier();
    const int chunk_row = first + Transfer::row();
    auto* const chunk_to = to.at(chunk_row, Transfer::column());
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      u32 words[4];
      load_smem_u32x4(words, transfer.chunk_address(n));
      if ((kExactTiling<S> || chunk_row + Transfer::rows(n) < count) &&
          M::template has<kColumns>(Transfer::column() + Transfer::columns(n)))
        store_global_16(to.advance(chunk_to, Transfer::rows(n), Transfer::columns(n)), words);
    }
  }
}

}  // namespace mr
