// Fused attention: products of rows and tiles by mma or wgmma. Accumulators are float [kRowTiles][columns / 8][4], one
// m16n8 accumulator for each row tile and 8 columns.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

template <int kRowTiles, int kCount>
MR_DEVICE void clear(float (&c)[kRowTiles][kCount][4]) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) c[row_tile][n][e] = 0;
    }
  }
}

// The row address that a lane passes to load 16 lines x 16 elements as four 8 x 8 matrices. The second matrix is next
// to the first along the lines (along), or has the next 8 lines (across).
template <class P>
MR_DEVICE SmemAddress along_lines(const P& tile) {
  const int lane = lane_id();
  return tile.base + (lane / 16 * 8 + lane % 8) * kPaddedPitch<P::kLength> + lane / 8 % 2 * 16;
}
template <class P>
MR_DEVICE SmemAddress across_lines(const P& tile) {
  const int lane = lane_id();
  return tile.base + lane % 16 * kPaddedPitch<P::kLength> + lane / 16 * 16;
}

// B fragments of 16 columns over 16 k: from rows of a tile for a product with its transpose, or with the tile itself.
template <class P>
MR_DEVICE void load_b_transposed(u32 (&b)[4], const P& tile, int row, int column) {
  if constexpr (P::kOrder == Order::row_major) {
    ldmatrix_x4(b, along_lines(tile) + row * kPaddedPitch<P::kLength> + column * 2);
  } else {
    ldmatrix_x4_trans(b, across_lines(tile) + column * kPaddedPitch<P::kLength> + row * 2);
  }
}
template <class P>
MR_DEVICE void load_b(u32 (&b)[4], const P& tile, int row, int column) {
  if constexpr (P::kOrder == Order::row_major) {
    ldmatrix_x4_trans(b, across_lines(tile) + row * kPaddedPitch<P::kLength> + column * 2);
  } else {
    ldmatrix_x4(b, along_lines(tile) + column * kPaddedPitch<P::kLength> + row * 2);
  }
}

// Waits for wgmma results, of all groups but the kPending youngest; the accumulators must not be touched before. With
// mma there is nothing to wait for.
template <class S, int kPending = 0, int kCount>
MR_DEVICE void finish_wgmma(float (&c)[S::kRowTiles][kCount][4]) {
  if constexpr (S::kWgmma) {
    wgmma_wait_but<kPending>();
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) {
        MR_UNROLL
        for (int e = 0; e < 4; ++e) fence_operand(c[row_tile][n][e]);
      }
    }
  }
}

// 16 columns (a pair of accumulators) over 16 k.
template <class S, int kCount, int kSteps>
MR_DEVICE void mma_pair(float (&c)[S::kRowTiles][kCount][4], int pair, const u32 (&a)[S::kRowTiles][kSteps][4],
                        int step, const u32 (&b)[4]) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    mma_m16n8k16<typename S::T>(c[row_tile][2 * pair], a[row_tile][step], b[0], b[1]);
    mma_m16n8k16<typename S::T>(c[row_tile][2 * pair + 1], a[row_tile][step], b[2], b[3]);
  }
}

// c = rows · tileᵀ, for as many rows of the tile from `row` on as c has columns.
template <class S, int kColumns, int kCount, class R, class P>
MR_DEVICE void multiply_by_transpose(float (&c)[S::kRowTiles][kCount][4], const ResidentRows<S, kColumns, R>& rows,
                                     const P& tile, int row) {
  constexpr bool kTransB = P::kOrder == Order::col_major;
  if constexpr (S::kRowsInSmem) {
    constexpr bool kTransA = R::kOrder == Order::col_major;
    const SmemDescriptor b_descriptor = make_descriptor(tile.address(row, 0), kTransB ? P::offset_at(64, 0) : 16);
    wgmma_fence();
    MR_UNROLL
    for (int step = 0; step < kColumns / 16; ++step)
      wgmma_ss<typename S::T, 8 * kCount, kTransA, kTransB, 0>(
          c[0], rows.a_descriptor(step * 16), b_descriptor.advanced(P::offset_at(0, step * 16)), step > 0 ? 1 : 0);
    wgmma_commit();
  } else if constexpr (S::kWgmma) {
    const SmemDescriptor b_descriptor = make_descriptor(tile.address(row, 0));
    wgmma_fence();
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int step = 0; step < kColumns / 16; ++step)
        wgmma_rs<typename S::T, 8 * kCount, kTransB, 0>(c[row_tile], rows.fragments[row_tile][step],
                                                        b_descriptor.advanced(P::offset_at(0, step * 16)),
                                                        step > 0 ? 1 : 0);
    }
    wgmma_commit();
  } else {
    clear(c);
    MR_UNROLL
    for (int step = 0; step < kColumns / 16; ++step) {
      MR_UNROLL
      for (int pair = 0; pair < kCount / 2; ++pair) {
        u32 b[4];
        load_b_transposed(b, tile, row + pair * 16, step * 16);
        mma_pair<S>(c, pair, rows.fragments, step, b);
      }
    }
  }
}

// c += a · tile, with rows of the tile from `row` on and kColumns of its columns from `column` on.
template <class S, int kColumns, int kSteps, class P>
MR_DEVICE void multiply_by_tile(float (&c)[S::kRowTiles][kColumns / 8][4], const u32 (&a)[S::kRowTiles][kSteps][4],
                                const P& tile, int row, int column) {
  using T = typename S::T;
  constexpr bool kTransB = P::kOrder == Order::row_major;
  if constexpr (S::kWgmma) {
    constexpr int kRunBytes = kTransB ? P::offset_at(0, 64) : 16;
    const SmemDescriptor b_descriptor = make_descriptor(tile.address(row, column), kRunBytes);
    wgmma_fence();
    MR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      MR_UNROLL
      for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile)
        wgmma_rs<T, kColumns, kTransB, 0>(c[row_tile], a[row_tile][step],
                                          b_descriptor.advanced(P::offset_at(step * 16, 0)), 1);
    }
    wgmma_commit();
  } else {
    MR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      MR_UNROLL
      for (int pair = 0; pair < kColumns / 16; ++pair) {
        u32 b[4];
        load_b(b, tile, row + step * 16, column + pair * 16);
        mma_pair<S>(c, pair, a, step, b);
      }
    }
  }
}

// Accumulators have just the layout of an A fragment: rounds 16 columns, from accumulator `first` on.
template <class T, int kCount>
MR_DEVICE void pack_a_fragment(u32 (&to)[4], const float (&scores)[kCount][4], int first) {
  MR_UNROLL
  for (int n = 0; n < 4; ++n) {
    const float(&acc)[4] = scores[first + n / 2];
    to[n] = pack_halves<T>(acc[n % 2 * 2], acc[n % 2 * 2 + 1]);
  }
}

// c += scores · tile, with 16 kSteps columns of the scores from accumulator `first` on, and the tile's rows from `row`
// on.
template <class S, int kColumns, int kSteps, int kCount, class P>
MR_DEVICE void multiply_scores(float (&c)[S::kRowTiles][kColumns / 8][4],
                               const float (&scores)[S::kRowTiles][kCount][4], int first, const P& tile, int row) {
  using T = typename S::T;
  u32 a[S::kRowTiles][kSteps][4];
  MR_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      pack_a_fragment<T>(a[row_tile][step], scores[row_tile], first + 2 * step);
      MR_UNROLL
      for (int n = 0; S::kWgmma && n < 4; ++n) fence_operand(a[row_tile][step][n]);
    }
  }
  multiply_by_tile<S, kColumns>(c, a, tile, row, 0);
}

// wgmma needs one row tile for each warp; and if rows are fragments, nothing may be hidden. Otherwise ptxas 13.0 reuses
// registers of an A operand that the next tile still needs: when a kernel branches between products, when two row tiles
// leave too few registers, and when the loop over tiles is short (one stage, or more stages than tiles).
template <class S>
constexpr bool kWgmmaSupported =
    S::kRowTiles == 1 &&
    (S::kRowsInSmem || (!S::kCausal && !S::kWindow && !S::kFormulas && S::kKeys % S::kTileColumns == 0 &&
                        S::kQueries % S::kTileColumns == 0 && S::kStages > 1 &&
                        (S::kStages == 2 || S::kStages * S::kTileColumns <= least_of(S::kKeys, S::kQueries))));

}  // namespace mr
