// Fused attention with warp specialization, backward: d_q, and the RowStats of every query.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

template <int kOwnNumber>
struct Younger {
  static constexpr int kNumber = kOwnNumber;
};

// Replaces scores by p · (dp · mask - delta); they are weights p already.
template <class S, int kCount, class M>
MR_DEVICE void weight_gradients(float (&weights)[1][kCount][4], const float (&dp)[1][kCount][4],
                                const RowStats<S>& stats, const M& mask, const u32 (&mask_bits)[kCount / 4][1][2],
                                int row, int key) {
  MR_UNROLL
  for (int n = 0; n < kCount / 4 * 2; ++n) {
    const int half = n % 2;
    const int slice = n / 2;
    bool kept[8];
    if constexpr (S::kDropout)
      mask.find_kept(kept, row + fragment_row() + half * 8, key + slice * 32, mask_bits[slice][0][half]);
    MR_UNROLL
    for (int l = 0; l < 8; ++l) {
      float& own = weights[0][slice * 4 + l / 2][2 * half + l % 2];
      float d = dp[0][slice * 4 + l / 2][2 * half + l % 2];
      if constexpr (S::kDropout) d = kept[l] ? d : 0.0f;
      own *= d * mask.scale() - stats.delta[0][half];
    }
  }
}

// Replaces scores by weights.
template <class S, int kCount>
MR_DEVICE void weights_of_rows(float (&scores)[1][kCount][4], const RowStats<S>& stats, float scale_log2) {
  MR_UNROLL
  for (int n = 0; n < kCount * 4; ++n)
    scores[0][n / 4][n % 4] = exp2_approx(scores[0][n / 4][n % 4] * scale_log2 - stats.lse[0][n % 4 / 2]);
}

// While a tile's products run, the previous tile's gradients of scores are multiplied by its keys.
template <class S, class Q, class K, class V, class O, class L, class DO, class DQ, class M, class X>
MR_DEVICE void attention_backward_dq_specialized(int block, const Q& q, const K& k, const V& v, const O& o,
                                                 const L& log_sum_exp, const DO& d_o, const DQ& d_q, float* row_stats,
                                                 double scale, const M& mask, const X& score) {
  ResidentRows<S, S::kInner, Q> rows;
  rows.place(smem_base() + kRowsOffset<S>);
  ResidentRows<S, S::kValues, DO> d_rows;
  d_rows.place(smem_base() + kSecondRowsOffset<S>);
  make_barriers<S>();
  // Without a gradient of the queries only the rows' statistics are needed, and no tile of keys.
  TileRange all = key_tiles<S>(block);
  if (!S::kStoresDq) all.end = all.first;
  if (is_producer<S>()) {
    const auto copy_rows = [&] {
      rows.copy(q, block, S::kQueries);
      d_rows.copy(d_o, block, S::kQueries);
    };
    produce<S, S::kInner>(
        all.first, all.end, copy_rows, [&](int tile, SmemAddress to) { fetch_keys<S>(tile, to, k); },
        [&](int tile, SmemAddress to) { fetch_values<S>(tile, to, v); });
    return;
  }
  raise_registers<kConsumerRegisters<S, S::kInner>>();
  const TileRange own = within(key_tiles<S>(warpgroup_first_row<S>(block), 64), all);
  const int row = warp_first_row<S>(block);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  RowStats<S> stats;
  stats.compute_from_memory(o, d_o, log_sum_exp, row, [&](int query, float lse, float delta) {
    if (!kExactTiling<S> && query >= S::kQueries) return;
    row_stats[typename S::I(query) * 2] = lse;
    row_stats[typename S::I(query) * 2 + 1] = delta;
  });
  TileConsumer<S> tiles;
  tiles.wait_for_rows();
  rows.finish(softmax_scale);
  float acc[1][S::kInner / 8][4];
  clear(acc);
  TileScores<S> scores;
  TileScores<S> dp;
  TileFragments<S> gradients;
  const auto start_tile = [&](int stage) {
    const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{stage_address<S>(stage)};
    const SmemTile<S, S::kTileColumns, S::kValues, V::kOrder> values{stage_address<S>(stage) + kSecondTileOffset<S>};
    multiply_by_transpose<S, S::kInner>(scores, rows, keys, 0);
    tiles.wait_for_second(stage);
    multiply_by_transpose<S, S::kValues>(dp, d_rows, values, 0);
  };
  const auto start_keys = [&](int stage) {
    const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{stage_address<S>(stage)};
    multiply_by_tile<S, S::kInner>(acc, gradients, keys, 0, 0);
  };
  // Replaces scores by their gradients; kYounger groups of products were started after this tile's.
  const auto find_gradients = [&](int tile, int stage, auto younger) {
    constexpr int kYounger = decltype(younger)::kNumber;
    const int key = tile * S::kTileColumns;
    TileMaskBits<S> mask_bits;
    find_mask_bits<S>(mask_bits, mask, row, key);
    TileTerms<S, X> terms;
    load_terms<S>(terms, score, row, key);
    const bool hides = hides_keys<S>(row, key);
    finish_wgmma<S, kYounger + 1>(scores);
    if constexpr (X::kPlain) {
      if (hides) hide_keys<S>(scores, row, key);
      weights_of_rows<S>(scores, stats, scale_log2);
    }
    finish_wgmma<S, kYounger>(dp);
    tiles.template release<Half::second>(stage);
    if constexpr (X::kPlain) {
      weight_gradients<S>(scores, dp, stats, mask, mask_bits, row, key);
    } else {
      MR_UNROLL
      for (int slice = 0; slice < S::kTileColumns / 32; ++slice)
        formula_gradients<S>(scores, dp, slice * 4, stats, score, terms[slice], hides, mask, mask_bits[slice], row,
                             key + slice * 32);
    }
  };
  tiles.skip(own.first - all.first);
  if (own.first < own.end) {
    int stage = tiles.wait();
    start_tile(stage);
    find_gradients(own.first, stage, Younger<0>());
    pack_scores<S>(gradients, scores);
    MR_NO_UNROLL
    for (int tile = own.first + 1; tile < own.end; ++tile) {
      const int next_stage = tiles.wait();
      start_tile(next_stage);
      start_keys(stage);
      find_gradients(tile, next_stage, Younger<1>());
      finish_wgmma<S>(acc);
      tiles.template release<Half::first>(stage);
      pack_scores<S>(gradients, scores);
      stage = next_stage;
    }
    start_keys(stage);
    finish_wgmma<S>(acc);
    tiles.template release<Half::first>(stage);
  }
  tiles.skip(all.end - own.end);
  consumer_barrier<S>();
  float factors[1][2];
  set_all(factors, static_cast<float>(scale));
  if constexpr (S::kStoresDq)
    store_rows<S, S::kInner>(WarpScratch<S>(smem_base()), d_q, row, S::kQueries, acc, factors);
}

}  // namespace mr
