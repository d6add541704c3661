// Fused attention: the forward kernel, and tiles of keys.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

struct TileRange {
  int first;
  int end;
};

// The tiles of keys that some of `rows` queries from `row` on see: those of a block, or of one of its warpgroups.
template <class S>
MR_DEVICE TileRange key_tiles(int row, int rows) {
  const int first = row + S::kFirst;
  const int end = row + rows + S::kLast;
  const int seen = S::kCausal && end < S::kKeys ? end : S::kKeys;
  return {S::kWindow && first > 0 ? first / S::kTileColumns : 0, (seen + S::kTileColumns - 1) / S::kTileColumns};
}
template <class S>
MR_DEVICE TileRange key_tiles(int block) {
  return key_tiles<S>(block * kBlockRows<S>, kBlockRows<S>);
}

// Whether part of a tile is hidden from a warp.
template <class S>
MR_DEVICE bool hides_keys(int row, int key) {
  return key + S::kTileColumns > S::kKeys || (S::kCausal && key + S::kTileColumns - 1 > row + S::kLast) ||
         (S::kWindow && key < row + S::kRowTiles * 16 - 1 + S::kFirst);
}

template <class S, class K>
MR_DEVICE void fetch_keys(int tile, SmemAddress stage, const K& k) {
  fetch_tile<S, S::kTileColumns, S::kInner, S::kKeyOrder>(stage, k, tile * S::kTileColumns, S::kKeys);
}
template <class S, class V>
MR_DEVICE void fetch_values(int tile, SmemAddress stage, const V& v) {
  fetch_tile<S, S::kTileColumns, S::kValues, S::kKeyOrder>(stage + kSecondTileOffset<S>, v, tile * S::kTileColumns,
                                                           S::kKeys);
}
template <class S, class K, class V>
MR_DEVICE void fetch_key_tile(int tile, SmemAddress stage, const K& k, const V& v) {
  fetch_keys<S>(tile, stage, k);
  fetch_values<S>(tile, stage, v);
}

// The bits of hidden keys, so that the stored mask is complete. `tile`: the first tile that the block did not visit.
template <class S, class M>
MR_DEVICE void store_hidden_bits(const M& mask, int row, int tile) {
  MR_NO_UNROLL
  for (int key = tile * S::kTileColumns; key < S::kKeys; key += 32) {
    u32 bits[1][S::kRowTiles][2];
    find_mask_bits<S>(bits, mask, row, key);
  }
}

// Stores the logarithms of the rows' sums. `factors`: what makes a row's sum of values their mean.
template <class S, class L, class M>
MR_DEVICE void store_log_sums(float (&factors)[S::kRowTiles][2], const OnlineSoftmax<S>& softmax, const L& log_sum_exp,
                              const M& mask, int row) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = reduce_row<Sum>(softmax.row_sum[row_tile][half]);
      factors[row_tile][half] = mask.scale() / sum;
      const int own = row + row_tile * 16 + fragment_row() + half * 8;
      if ((kExactTiling<S> || own < S::kQueries) && fragment_column() == 0)
        *log_sum_exp.at(own, 0) = softmax.row_max[row_tile][half] * static_cast<float>(1 / kLog2E) + log_of(sum);
    }
  }
}

template <class S, class Q, class K, class V, class O, class L, class M, class X>
MR_DEVICE void attention_forward(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sum_exp,
                                 double scale, const M& mask, const X& score) {
  static_assert(S::kTileColumns % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSmemBytes<S> == S::kLaunchSmemBytes && (!S::kWgmma || kWgmmaSupported<S>));
  ResidentRows<S, S::kInner, Q> rows;
  rows.fetch(smem_base() + kRowsOffset<S>, q, block, S::kQueries);
  const auto fetch = [&](int tile, SmemAddress to) { fetch_key_tile<S>(tile, to, k, v); };
  const TileRange tiles = key_tiles<S>(block);
  const auto pipeline = make_pipeline<S>(tiles.first, tiles.end, fetch);
  const int row = warp_first_row<S>(block);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  rows.finish(softmax_scale);
  OnlineSoftmax<S> softmax;
  float acc[S::kRowTiles][S::kValues / 8][4];
  clear(acc);
  const auto work = [&](int tile, SmemAddress at) {
    const int key = tile * S::kTileColumns;
    float scores[S::kRowTiles][S::kTileColumns / 8][4];
    const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{at};
    const SmemTile<S, S::kTileColumns, S::kValues, V::kOrder> values{at + kSecondTileOffset<S>};
    multiply_by_transpose<S, S::kInner>(scores, rows, keys, 0);
    u32 mask_bits[S::kTileColumns / 32][S::kRowTiles][2];
    find_mask_bits<S>(mask_bits, mask, row, key);
    typename X::template Terms<KeyPlaces<S>> terms[S::kTileColumns / 32][S::kRowTiles][2];
    load_terms<S>(terms, score, row, key);
    finish_wgmma<S>(scores);
    find_logits<S>(scores, score, terms, row, key);
    if (hides_keys<S>(row, key)) hide_keys<S>(scores, row, key);
    float rescale[S::kRowTiles][2];
    softmax.exponentiate(scores, rescale, scale_log2);
    rescale_rows(acc, rescale);
    MR_UNROLL
    for (int slice = 0; slice < S::kTileColumns; slice += 32) {
      apply_dropout<S>(scores, slice / 8, mask, mask_bits[slice / 32], row, key + slice);
      multiply_scores<S, S::kValues, 2>(acc, scores, slice / 8, values, slice);
    }
    finish_wgmma<S>(acc);
  };
  pipeline.for_each(work);
  if constexpr (M::kStoresBits) store_hidden_bits<S>(mask, row, tiles.end);
  barrier();
  float factors[S::kRowTiles][2];
  store_log_sums<S>(factors, softmax, log_sum_exp, mask, row);
  store_rows<S, S::kValues>(WarpScratch<S>(last_stage<S>()), o, row, S::kQueries, acc, factors);
}

}  // namespace mr
