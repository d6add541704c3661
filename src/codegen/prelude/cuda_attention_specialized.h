// Fused attention with warp specialization: the forward kernel.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// The tiles of a warpgroup, within those of its block. A warpgroup without tiles starts and ends where the block's
// tiles end.
MR_DEVICE TileRange within(const TileRange& own, const TileRange& block) {
  const int first = own.first < block.end ? own.first : block.end;
  const int end = own.end < block.end ? own.end : block.end;
  return {first, end > first ? end : first};
}

// Zeroes dropped weights and rounds the others: the A operand of the product with the values.
template <class S, int kCount, class M>
MR_DEVICE void pack_weights(u32 (&to)[1][kCount / 2][4], float (&weights)[1][kCount][4], const M& mask,
                            const u32 (&mask_bits)[kCount / 4][1][2], int row, int key) {
  MR_UNROLL
  for (int slice = 0; slice < kCount / 4; ++slice)
    apply_dropout<S>(weights, slice * 4, mask, mask_bits[slice], row, key + slice * 32);
  pack_scores<S>(to, weights);
}

// While a tile's weights are multiplied by its values, the next tile's weights are computed.
template <class S, class Q, class K, class V, class O, class L, class M, class X>
MR_DEVICE void attention_forward_specialized(int block, const Q& q, const K& k, const V& v, const O& o,
                                             const L& log_sum_exp, double scale, const M& mask, const X& score) {
  ResidentRows<S, S::kInner, Q> rows;
  rows.place(smem_base() + kRowsOffset<S>);
  make_barriers<S>();
  const TileRange all = key_tiles<S>(block);
  if (is_producer<S>()) {
    produce<S, S::kValues>(
        all.first, all.end, [&] { rows.copy(q, block, S::kQueries); },
        [&](int tile, SmemAddress to) { fetch_keys<S>(tile, to, k); },
        [&](int tile, SmemAddress to) { fetch_values<S>(tile, to, v); });
    return;
  }
  raise_registers<kConsumerRegisters<S, S::kValues>>();
  const TileRange own = within(key_tiles<S>(warpgroup_first_row<S>(block), 64), all);
  const int row = warp_first_row<S>(block);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  TileConsumer<S> tiles;
  tiles.wait_for_rows();
  rows.finish(softmax_scale);
  OnlineSoftmax<S> softmax;
  float acc[1][S::kValues / 8][4];
  clear(acc);
  TileScores<S> scores;
  TileMaskBits<S> mask_bits;
  float rescale[1][2];
  const auto start_scores = [&](int stage) {
    const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{stage_address<S>(stage)};
    multiply_by_transpose<S, S::kInner>(scores, rows, keys, 0);
  };
  const auto start_values = [&](const TileFragments<S>& weights, int stage) {
    const SmemTile<S, S::kTileColumns, S::kValues, V::kOrder> values{stage_address<S>(stage) + kSecondTileOffset<S>};
    multiply_by_tile<S, S::kValues>(acc, weights, values, 0, 0);
  };
  const auto exponentiate = [&](int tile) {
    const int key = tile * S::kTileColumns;
    find_mask_bits<S>(mask_bits, mask, row, key);
    TileTerms<S, X> terms;
    load_terms<S>(terms, score, row, key);
    find_logits<S>(scores, score, terms, row, key);
    if (hides_keys<S>(row, key)) hide_keys<S>(scores, row, key);
    softmax.exponentiate(scores, rescale, scale_log2);
  };
  tiles.skip(own.first - all.first);
  if (own.first < own.end) {
    TileFragments<S> weights;
    int stage = tiles.wait();
    start_scores(stage);
    finish_wgmma<S>(scores);
    tiles.template release<Half::first>(stage);
    exponentiate(own.first);
    pack_weights<S>(weights, scores, mask, mask_bits, row, own.first * S::kTileColumns);
    MR_NO_UNROLL
    for (int tile = own.first + 1; tile < own.end; ++tile) {
      tiles.wait_for_second(stage);
      const int next_stage = tiles.wait();
      start_scores(next_stage);
      start_values(weights, stage);
      finish_wgmma<S, 1>(scores);
      tiles.template release<Half::first>(next_stage);
      exponentiate(tile);
      finish_wgmma<S>(acc);
      tiles.template release<Half::second>(stage);
      rescale_rows(acc, rescale);
      pack_weights<S>(weights, scores, mask, mask_bits, row, tile * S::kTileColumns);
      stage = next_stage;
    }
    tiles.wait_for_second(stage);
    start_values(weights, stage);
    finish_wgmma<S>(acc);
    tiles.template release<Half::second>(stage);
  }
  tiles.skip(all.end - own.end);
  if constexpr (M::kStoresBits) store_hidden_bits<S>(mask, row, own.end);
  consumer_barrier<S>();
  float factors[1][2];
  store_log_sums<S>(factors, softmax, log_sum_exp, mask, row);
  store_rows<S, S::kValues>(WarpScratch<S>(smem_base()), o, row, S::kQueries, acc, factors);
}

}  // namespace mr
