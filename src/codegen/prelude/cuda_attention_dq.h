// Fused attention, backward: d_q, and the RowStats of every query.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// Σ x·y over a thread's fragments of two rows.
template <class T, int kSteps>
MR_DEVICE float dot_fragments(const u32 (&x)[kSteps][4], const u32 (&y)[kSteps][4], int half) {
  float sum = 0;
  MR_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    MR_UNROLL
    for (int n = half; n < 4; n += 2) {
      sum += widened(T{static_cast<u16>(x[step][n])}) * widened(T{static_cast<u16>(y[step][n])});
      sum += widened(T{static_cast<u16>(x[step][n] >> 16)}) * widened(T{static_cast<u16>(y[step][n] >> 16)});
    }
  }
  return sum;
}

// Two numbers of each query in a warp's rows: lse, its log-sum-exp to base 2, and delta = Σ o·d_o. save(query, lse,
// delta) stores them for other threads.
template <class S>
struct RowStats {
  float lse[S::kRowTiles][2];
  float delta[S::kRowTiles][2];

  template <class O, class L, class Save>
  MR_DEVICE void compute(const u32 (&d_rows)[S::kRowTiles][S::kValues / 16][4],
                         const PrefetchedRows<S, S::kValues, O>& o, const L& log_sum_exp, int row, const Save& save) {
    u32 rows[S::kRowTiles][S::kValues / 16][4];
    o.to_fragments(rows);
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int own = row + row_tile * 16 + fragment_row() + half * 8;
        const bool in_bounds = kExactTiling<S> || own < S::kQueries;
        lse[row_tile][half] = in_bounds ? *log_sum_exp.at(own, 0) * static_cast<float>(kLog2E) : 0.0f;
        delta[row_tile][half] = reduce_row<Sum>(dot_fragments<typename S::T>(rows[row_tile], d_rows[row_tile], half));
        if (fragment_column() == 0) save(own, lse[row_tile][half], delta[row_tile][half]);
      }
    }
  }

  // The same without smem: the four threads of a row share its columns.
  template <class O, class DO, class L, class Save>
  MR_DEVICE void compute_from_memory(const O& o, const DO& d_o, const L& log_sum_exp, int row, const Save& save) {
    MR_UNROLL
    for (int n = 0; n < S::kRowTiles * 2; ++n) {
      const int own = row + n / 2 * 16 + fragment_row() + n % 2 * 8;
      const bool in_bounds = kExactTiling<S> || own < S::kQueries;
      lse[n / 2][n % 2] = in_bounds ? *log_sum_exp.at(own, 0) * static_cast<float>(kLog2E) : 0.0f;
      delta[n / 2][n % 2] = reduce_row<Sum>(in_bounds ? share_of_delta(o, d_o, own) : 0.0f);
      if (fragment_column() == 0) save(own, lse[n / 2][n % 2], delta[n / 2][n % 2]);
    }
  }

 private:
  template <class O, class DO>
  MR_DEVICE static float share_of_delta(const O& o, const DO& d_o, int row) {
    constexpr bool kRowMajor = O::kOrder == Order::row_major && DO::kOrder == Order::row_major;
    constexpr int kNeighbours = kRowMajor ? 8 : 1;
    float sum = 0;
    MR_UNROLL_SOME
    for (int first = 0; first < O::kColumns; first += 4 * kNeighbours) {
      const int column = first + lane_id() % 4 * kNeighbours;
      if (O::kColumns % (4 * kNeighbours) != 0 && column >= O::kColumns) continue;
      if constexpr (kRowMajor) {
        u32 x[1][4];
        u32 y[1][4];
        load_global_16(x[0], o.at(row, column), true);
        load_global_16(y[0], d_o.at(row, column), true);
        sum += dot_fragments<typename S::T>(x, y, 0) + dot_fragments<typename S::T>(x, y, 1);
      } else {
        sum += widened(*o.at(row, column)) * widened(*d_o.at(row, column));
      }
    }
    return sum;
  }
};

// Calls use(score, gradient of its logit, its terms, l, query, key) for the scores of 32 keys, from accumulator `first`
// on. `hides`: some of them may be hidden.
template <class S, class X, int kCount, class M, class Use>
MR_DEVICE void gradients_of_logits(float (&scores)[S::kRowTiles][kCount][4], const float (&dp)[S::kRowTiles][kCount][4],
                                   int first, const RowStats<S>& stats, const X& score,
                                   const typename X::template Terms<KeyPlaces<S>> (&terms)[S::kRowTiles][2], bool hides,
                                   const M& mask, const u32 (&mask_bits)[S::kRowTiles][2], int row, int key,
                                   const Use& use) {
  MR_UNROLL
  for (int n = 0; n < S::kRowTiles * 2; ++n) {
    const int row_tile = n / 2;
    const int half = n % 2;
    const KeyPlaces<S> places{row + row_tile * 16 + fragment_row() + half * 8, key};
    bool kept[8];
    if constexpr (S::kDropout) mask.find_kept(kept, places.query, key, mask_bits[row_tile][half]);
    MR_UNROLL
    for (int l = 0; l < 8; ++l) {
      float& own = scores[row_tile][first + l / 2][2 * half + l % 2];
      float d = dp[row_tile][first + l / 2][2 * half + l % 2];
      if constexpr (S::kDropout) d = kept[l] ? d : 0.0f;
      const int own_key = places.key_at(l);
      const float logit = score.logit(own, terms[row_tile][half], l, places.query, own_key);
      const float p = weight_of<S>(logit, stats.lse[row_tile][half], hides, places.query, own_key);
      const float g = p * (d * mask.scale() - stats.delta[row_tile][half]);
      use(own, g, terms[row_tile][half], l, places.query, own_key);
    }
  }
}

// Replaces scores by ds = p · (dp · mask - delta) for 32 keys, from accumulator `first` on. `mask_bits`: of
// find_mask_bits.
template <class S, int kCount, class M>
MR_DEVICE void score_gradients(float (&scores)[S::kRowTiles][kCount][4], const float (&dp)[S::kRowTiles][kCount][4],
                               int first, const RowStats<S>& stats, float scale_log2, const M& mask,
                               const u32 (&mask_bits)[S::kRowTiles][2], int row, int key) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      bool kept[8];
      if constexpr (S::kDropout)
        mask.find_kept(kept, row + row_tile * 16 + fragment_row() + half * 8, key, mask_bits[row_tile][half]);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        float& own = scores[row_tile][first + l / 2][2 * half + l % 2];
        float d = dp[row_tile][first + l / 2][2 * half + l % 2];
        if constexpr (S::kDropout) d = kept[l] ? d : 0.0f;
        own = exp2_approx(own * scale_log2 - stats.lse[row_tile][half]) *
              (d * mask.scale() - stats.delta[row_tile][half]);
      }
    }
  }
}

// The same with the formulas of a score; `terms` are those of the 32 keys. `hides`: some scores may be hidden.
template <class S, class X, int kCount, class M>
MR_DEVICE void formula_gradients(float (&scores)[S::kRowTiles][kCount][4], const float (&dp)[S::kRowTiles][kCount][4],
                                 int first, const RowStats<S>& stats, const X& score,
                                 const typename X::template Terms<KeyPlaces<S>> (&terms)[S::kRowTiles][2], bool hides,
                                 const M& mask, const u32 (&mask_bits)[S::kRowTiles][2], int row, int key) {
  gradients_of_logits<S, X>(scores, dp, first, stats, score, terms, hides, mask, mask_bits, row, key,
                            [&](float& x, float g, const auto& own, int l, int query, int at) {
                              if constexpr (S::kStoresDq) x = score.d_score(x, g, own, l, query, at);
                            });
}

template <int kRowTiles>
MR_DEVICE void set_all(float (&to)[kRowTiles][2], float x) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) to[row_tile][0] = to[row_tile][1] = x;
}

template <class S, class Q, class K, class V, class O, class L, class DO, class DQ, class M, class X>
MR_DEVICE void attention_backward_dq(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sum_exp,
                                     const DO& d_o, const DQ& d_q, float* row_stats, double scale, const M& mask,
                                     const X& score) {
  static_assert(S::kTileColumns % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSmemBytes<S> == S::kLaunchSmemBytes && (!S::kWgmma || kWgmmaSupported<S>));
  ResidentRows<S, S::kInner, Q> rows;
  rows.fetch(smem_base() + kRowsOffset<S>, q, block, S::kQueries);
  ResidentRows<S, S::kValues, DO> d_rows;
  d_rows.fetch(smem_base() + kSecondRowsOffset<S>, d_o, block, S::kQueries);
  const auto fetch = [&](int tile, SmemAddress to) { fetch_key_tile<S>(tile, to, k, v); };
  // Without a gradient of the queries only the rows' statistics are needed, and no tile of keys.
  const TileRange tiles = key_tiles<S>(block);
  const auto pipeline = make_pipeline<S>(tiles.first, S::kStoresDq ? tiles.end : tiles.first, fetch);
  const int row = warp_first_row<S>(block);
  PrefetchedRows<S, S::kValues, O> o_rows;
  o_rows.load(o, row, S::kQueries);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  rows.finish(softmax_scale);
  d_rows.finish(1);
  RowStats<S> stats;
  const auto save = [&](int query, float lse, float delta) {
    if (!kExactTiling<S> && query >= S::kQueries) return;
    row_stats[typename S::I(query) * 2] = lse;
    row_stats[typename S::I(query) * 2 + 1] = delta;
  };
  if constexpr (S::kRowsInSmem) {
    PrefetchedRows<S, S::kValues, DO> loaded;
    loaded.load(d_o, row, S::kQueries);
    u32 fragments[S::kRowTiles][S::kValues / 16][4];
    loaded.to_fragments(fragments);
    stats.compute(fragments, o_rows, log_sum_exp, row, save);
  } else {
    stats.compute(d_rows.fragments, o_rows, log_sum_exp, row, save);
  }
  float acc[S::kRowTiles][S::kInner / 8][4];
  clear(acc);
  constexpr int kSlice = S::kWgmma ? 64 : 32;                          // keys
  constexpr bool kAhead = M::kReadsBits && kSlice == S::kTileColumns;  // reads bits during the previous tile
  u32 ahead[kSlice / 32][S::kRowTiles][2];
  if constexpr (kAhead) find_mask_bits<S>(ahead, mask, row, 0);
  const auto work = [&](int tile, SmemAddress at) {
    const bool hides = hides_keys<S>(row, tile * S::kTileColumns);
    MR_NO_UNROLL
    for (int slice = 0; slice < S::kTileColumns; slice += kSlice) {
      const int key = tile * S::kTileColumns + slice;
      const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{at};
      const SmemTile<S, S::kTileColumns, S::kValues, V::kOrder> values{at + kSecondTileOffset<S>};
      float scores[S::kRowTiles][kSlice / 8][4];
      float dp[S::kRowTiles][kSlice / 8][4];
      multiply_by_transpose<S, S::kInner>(scores, rows, keys, slice);
      multiply_by_transpose<S, S::kValues>(dp, d_rows, values, slice);
      u32 mask_bits[kSlice / 32][S::kRowTiles][2];
      if constexpr (kAhead) {
        copy_mask_bits<S>(mask_bits, ahead);
        find_mask_bits<S>(ahead, mask, row, key + kSlice < S::kKeys ? key + kSlice : key);
      } else {
        find_mask_bits<S>(mask_bits, mask, row, key);
      }
      typename X::template Terms<KeyPlaces<S>> terms[kSlice / 32][S::kRowTiles][2];
      load_terms<S>(terms, score, row, key);
      finish_wgmma<S>(scores);
      finish_wgmma<S>(dp);
      if (X::kPlain && hides) hide_keys<S>(scores, row, key);
      MR_UNROLL
      for (int offset = 0; offset < kSlice; offset += 32) {
        if constexpr (X::kPlain) {
          score_gradients<S>(scores, dp, offset / 8, stats, scale_log2, mask, mask_bits[offset / 32], row,
                             key + offset);
        } else {
          formula_gradients<S>(scores, dp, offset / 8, stats, score, terms[offset / 32], hides, mask,
                               mask_bits[offset / 32], row, key + offset);
        }
        multiply_scores<S, S::kInner, 2>(acc, scores, offset / 8, keys, slice + offset);
      }
      finish_wgmma<S>(acc);
    }
  };
  pipeline.for_each(work);
  barrier();
  float factors[S::kRowTiles][2];
  set_all(factors, static_cast<float>(scale));
  if constexpr (S::kStoresDq) store_gradient<S, S::kInner>(d_q, row, S::kQueries, acc, factors);
}

}  // namespace mr
