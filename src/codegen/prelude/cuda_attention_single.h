// Fused attention, backward: d_q, d_k and d_v in a single kernel, if a block has all keys.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

template <class S>
struct OneRowTile : S {
  static constexpr int kRowTiles = 1;
};

// d_q of a tile: all warps store their gradients of the scores to smem, one line for each key. Then each warp
// multiplies those of 16 queries by some columns of the keys.
template <class S, class K, class DQ>
struct DqFromScores {
  static constexpr int kQueryRowTiles = S::kTileColumns / 16;
  static constexpr int kColumnSplits = S::kWarps > kQueryRowTiles ? S::kWarps / kQueryRowTiles : 1;
  static constexpr int kColumns = S::kInner / kColumnSplits;
  static_assert(kColumns * kColumnSplits == S::kInner && kColumns % (S::kWgmma ? 32 : 16) == 0);
  static_assert(kQueryRowTiles * kColumnSplits % S::kWarps == 0);
  using Scores = SmemTile<S, kBlockRows<S>, S::kTileColumns, Order::row_major>;
  using Keys = SmemTile<S, kBlockRows<S>, S::kInner, K::kOrder>;
  const DQ& d_q;
  float scale;

  template <int kCount>
  MR_DEVICE void after_slice(const float (&ds)[S::kRowTiles][kCount][4], int row, int slice) const {
    const int key = row + lane_id() / 8 % 2 * 8 + lane_id() % 8;
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      const int own = Scores::offset(key + row_tile * 16, lane_id() / 16 * 8);
      MR_UNROLL
      for (int pair = 0; pair < kCount / 2; ++pair) {
        u32 fragments[4];
        pack_a_fragment<typename S::T>(fragments, ds[row_tile], 2 * pair);
        stmatrix_x4(tile_address<S>(smem_base() + kScoreGradientsOffset<S>, own, Scores::offset(0, slice + pair * 16)),
                    fragments);
      }
    }
  }

  // `stage`: that of the tile, which is not read again after the barrier.
  MR_DEVICE void after_tile(int tile, SmemAddress stage) const {
    if constexpr (S::kWgmma) fence_async_proxy();  // for the stores of after_slice
    barrier();
    MR_UNROLL
    for (int n = 0; n < kQueryRowTiles * kColumnSplits; n += S::kWarps) {
      const int own = n + (S::kWgmma ? warp_uniform(warp_id()) : warp_id());
      const int query = own % kQueryRowTiles * 16;
      const int column = own / kQueryRowTiles * kColumns;
      float acc[1][kColumns / 8][4];
      multiply(acc, query, column);
      const float factors[1][2] = {{scale, scale}};
      const Matrix<typename DQ::E, typename DQ::I, DQ::kOrder, kColumns> columns{d_q.at(0, column), d_q.pitch};
      store_rows<OneRowTile<S>, kColumns>(WarpScratch<OneRowTile<S>>(stage), columns, tile * S::kTileColumns + query,
                                          S::kQueries, acc, factors);
    }
  }

  // ds of 16 queries times the keys' columns; with wgmma, a warpgroup takes the 64 queries of a tile from smem.
  MR_DEVICE static void multiply(float (&acc)[1][kColumns / 8][4], int query, int column) {
    using T = typename S::T;
    constexpr int kSteps = kBlockRows<S> / 16;
    const SmemAddress scores = smem_base() + kScoreGradientsOffset<S>;
    const Keys keys{smem_base() + kRowsOffset<S>};
    if constexpr (S::kWgmma) {
      static_assert(S::kTileColumns == 64);
      constexpr bool kTransB = K::kOrder == Order::row_major;
      const SmemDescriptor a_descriptor = make_descriptor(scores);
      const SmemDescriptor b_descriptor = make_descriptor(keys.address(0, column));
      wgmma_fence();
      MR_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        MR_UNROLL
        for (int offset = 0; offset < kColumns; offset += 64) {
          constexpr int kColumnsPerWgmma = kColumns < 64 ? kColumns : 64;
          const SmemDescriptor own_a = a_descriptor.advanced(Scores::offset_at(step * 16, 0));
          const SmemDescriptor own_b = b_descriptor.advanced(Keys::offset_at(step * 16, offset));
          if (offset == 0) {
            wgmma_ss<T, kColumnsPerWgmma, true, kTransB, 0>(acc[0], own_a, own_b, step > 0 ? 1 : 0);
          } else if constexpr (kColumns > 64) {
            wgmma_ss<T, kColumnsPerWgmma, true, kTransB, 8>(acc[0], own_a, own_b, step > 0 ? 1 : 0);
          }
        }
      }
      wgmma_commit();
      finish_wgmma<OneRowTile<S>>(acc);
    } else {
      clear(acc);
      const int lane = lane_id();
      const int own = Scores::offset(lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8);
      MR_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        u32 a[1][1][4];
        ldmatrix_x4_trans(a[0][0], scores + own + Scores::offset(step * 16, 0));
        multiply_by_tile<OneRowTile<S>, kColumns>(acc, a, keys, step * 16, column);
      }
    }
  }
};

template <class S, class Q, class K, class V, class O, class L, class DO, class DQ, class DK, class DV, class M>
MR_DEVICE void attention_backward(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sum_exp,
                                  const DO& d_o, const DQ& d_q, const DK& d_k, const DV& d_v, double scale,
                                  const M& mask) {
  static_assert(S::kTileColumns % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSmemBytes<S> == S::kLaunchSmemBytes && (!S::kWgmma || kWgmmaSupported<S>));
  static_assert(kBlockRows<S> >= S::kKeys && S::kMembers == 1);
  KeyRows<S, K, V> rows(k, v, block);
  if constexpr (!S::kRowsInSmem)
    fetch_tile<S, kBlockRows<S>, S::kInner, RowOrder::in_order>(smem_base() + kRowsOffset<S>, k, 0, S::kKeys);
  const auto fetch = [&](int tile, SmemAddress to) { fetch_query_tile<S>(tile, to, q, d_o, nullptr, mask, 0); };
  constexpr int kQueryTiles = (S::kQueries + S::kTileColumns - 1) / S::kTileColumns;
  const auto pipeline = make_pipeline<S>(0, kQueryTiles, fetch);
  MR_NO_UNROLL
  for (int row = warp_first_row<S>(0); row - warp_first_row<S>(0) < kQueryTiles * S::kTileColumns;
       row += kBlockRows<S>) {
    PrefetchedRows<S, S::kValues, DO> d_loaded;
    d_loaded.load(d_o, row, S::kQueries);
    PrefetchedRows<S, S::kValues, O> loaded;
    loaded.load(o, row, S::kQueries);
    u32 d_rows[S::kRowTiles][S::kValues / 16][4];
    d_loaded.to_fragments(d_rows);
    RowStats<S>().compute(d_rows, loaded, log_sum_exp, row, [&](int query, float lse, float delta) {
      if (query < kQueryTiles * S::kTileColumns)
        store_smem_f32x2(smem_base() + kAllRowStatsOffset<S> + query * 8, lse, delta);
    });
  }
  const bool negated = S::kRowsInSmem && scale < 0;  // the keys in smem
  DqFromScores<S, K, DQ> gradients{d_q, static_cast<float>(negated ? -scale : scale)};
  fence_operand(gradients.scale);
  const auto query_head = [&](int) { return make_query_head(q, d_o, nullptr, mask, PlainScore()); };
  accumulate_dk_dv<S>(block, rows, pipeline, QueryTiles<S>{0, kQueryTiles}, query_head, d_k, d_v, scale, gradients);
}

}  // namespace mr
