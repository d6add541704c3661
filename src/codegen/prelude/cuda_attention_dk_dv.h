// Fused attention, backward: d_k and d_v.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// For 16 queries (from accumulator `first` on) and a warp's keys: replaces scores by p · mask without its scale, and dp
// by ds. `squares`: of find_square.
template <class S, int kCount, class M>
MR_DEVICE void square_gradients(float (&scores)[S::kRowTiles][kCount][4], float (&dp)[S::kRowTiles][kCount][4],
                                int first, SmemAddress row_stats, float scale_log2, const M& mask,
                                const u32 (&squares)[S::kRowTiles][2]) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    MR_UNROLL
    for (int n = 0; n < 2; ++n) {
      float stats[4];
      load_smem_f32x4(stats, row_stats + (n * 8 + fragment_column()) * 8);
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        float& p = scores[row_tile][first + n][e];
        float& d = dp[row_tile][first + n][e];
        p = exp2_approx(p * scale_log2 - stats[e % 2 * 2]);
        const bool dropped = S::kDropout && (squares[row_tile][n] & M::square_bit(e)) == 0;
        d = p * ((dropped ? 0.0f : d) * mask.scale() - stats[e % 2 * 2 + 1]);
        p = dropped ? 0.0f : p;
      }
    }
  }
}

template <class S, int kCount>
MR_DEVICE void hide_queries(float (&scores)[S::kRowTiles][kCount][4], int row, int query) {
  hide<S>(scores, [&](int warp_row, int n, int e) {
    return is_outside_window<S>(query + n * 8 + fragment_column() + e % 2, row + warp_row);
  });
}

// Whether some of kCount queries are outside the window of some of a warp's keys.
template <class S, int kCount>
MR_DEVICE bool hides_queries(int row, int query) {
  return (S::kCausal && query < row + S::kRowTiles * 16 - 1 - S::kLast) ||
         (S::kWindow && query + kCount - 1 > row - S::kFirst);
}

// square_gradients with the formulas of a score, which give ds. `all_terms`: what they read. `query`, `row`: the first
// query and key. `hides`: some scores may be hidden, and those of queries after the last one are.
template <class S, class X, int kCount, class M>
MR_DEVICE void formula_squares(float (&scores)[S::kRowTiles][kCount][4], float (&dp)[S::kRowTiles][kCount][4],
                               int first, SmemAddress row_stats, const X& score,
                               const typename X::template Terms<SquarePlaces> (&all_terms)[S::kRowTiles], bool hides,
                               const M& mask, const u32 (&squares)[S::kRowTiles][2], int row, int query) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    const SquarePlaces places{query, row + row_tile * 16};
    const auto& terms = all_terms[row_tile];
    MR_UNROLL
    for (int n = 0; n < 2; ++n) {
      float stats[4];
      load_smem_f32x4(stats, row_stats + (n * 8 + fragment_column()) * 8);
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int l = n * 4 + e;
        float& p = scores[row_tile][first + n][e];
        float& d = dp[row_tile][first + n][e];
        const float x = p;
        const float logit = score.logit(x, terms, l, places.query_at(l), places.key_at(l));
        p = weight_of<S>(logit, stats[e % 2 * 2], hides, places.query_at(l), places.key_at(l));
        const bool dropped = S::kDropout && (squares[row_tile][n] & M::square_bit(e)) == 0;
        const float g = p * ((dropped ? 0.0f : d) * mask.scale() - stats[e % 2 * 2 + 1]);
        if constexpr (S::kStoresDk) d = score.d_score(x, g, terms, l, places.query_at(l), places.key_at(l));
        p = dropped ? 0.0f : p;
      }
    }
  }
}

// Rows after the last query are zeros in every operand, so they add nothing.
template <class S, class Q>
MR_DEVICE void fetch_queries(int tile, SmemAddress to, const Q& q) {
  fetch_tile<S, S::kTileColumns, S::kInner, RowOrder::in_order>(to, q, tile * S::kTileColumns, S::kQueries);
}
template <class S, class DO>
MR_DEVICE void fetch_gradients(int tile, SmemAddress to, const DO& d_o) {
  fetch_tile<S, S::kTileColumns, S::kValues, RowOrder::in_order>(to + kSecondTileOffset<S>, d_o, tile * S::kTileColumns,
                                                                 S::kQueries);
}
// What else belongs to queries: their statistics and mask bits. `row`: first row of the block.
template <class S, class M>
MR_DEVICE void fetch_query_data(int tile, SmemAddress to, const float* row_stats, const M& mask, int row) {
  const int first = tile * S::kTileColumns;
  if constexpr (!S::kSingleKernel) {
    MR_UNROLL
    for (int n = 0; n < S::kTileColumns; n += kCopyThreads<S>) {
      const int number = n + copy_thread<S>();
      const bool in_bounds = first + number < S::kQueries;
      if (number < S::kTileColumns)
        cp_async_8(to + kRowStatsOffset<S> + number * 8, row_stats + typename S::I(in_bounds ? first + number : 0) * 2,
                   in_bounds);
    }
  }
  if constexpr (M::kReadsBits) {
    static_assert(kMaskRowBytes<S> % 4 == 0);
    constexpr int kWords = S::kTileColumns * kMaskRowBytes<S> / 4;
    MR_UNROLL
    for (int n = 0; n < kWords; n += kCopyThreads<S>) {
      const int number = n + copy_thread<S>();
      const int query = first + number * 4 / kMaskRowBytes<S>;
      const int key = row + number * 4 % kMaskRowBytes<S> * 8;
      const bool in_bounds = M::has(query, key);
      if (number < kWords)
        cp_async_4(to + kMaskBitsOffset<S> + number * 4, mask.bits + (in_bounds ? mask.block(query, key) : 0),
                   in_bounds);
    }
  }
}

template <class S, class Q, class DO, class M>
MR_DEVICE void fetch_query_tile(int tile, SmemAddress to, const Q& q, const DO& d_o, const float* row_stats,
                                const M& mask, int row) {
  fetch_queries<S>(tile, to, q);
  fetch_gradients<S>(tile, to, d_o);
  fetch_query_data<S>(tile, to, row_stats, mask, row);
}

template <class S, int kCount>
MR_DEVICE void hide_rows_past_end(float (&scores)[S::kRowTiles][kCount][4], int row) {
  hide<S>(scores, [&](int warp_row, int, int) { return row + warp_row >= S::kKeys; });
}

template <class S, class K, class V>
struct KeyRows {
  ResidentRows<S, S::kInner, K> k;
  ResidentRows<S, S::kValues, V> v;

  MR_DEVICE KeyRows(const K& k_matrix, const V& v_matrix, int block) {
    k.fetch(smem_base() + kRowsOffset<S>, k_matrix, block, S::kKeys);
    v.fetch(smem_base() + kSecondRowsOffset<S>, v_matrix, block, S::kKeys);
  }
};

// The operands of a head that are the columns of a block's scores.
template <class Query, class Gradient, class Mask, class Score>
struct QueryHead {
  using Q = Query;
  using DO = Gradient;
  using M = Mask;
  using X = Score;
  Q q;
  DO d_o;
  const float* row_stats;
  M mask;
  X score;
};
template <class Q, class DO, class M, class X>
MR_DEVICE QueryHead<Q, DO, M, X> make_query_head(const Q& q, const DO& d_o, const float* row_stats, const M& mask,
                                                 const X& score) {
  return {q, d_o, row_stats, mask, score};
}

// The tiles of queries that a block visits: [first, end) of each of its kMembers heads of a group, one head after the
// other. A pipeline numbers them from `first` on.
template <class S>
struct QueryTiles {
  int first;
  int end;

  MR_DEVICE int last() const { return first + (end - first) * S::kMembers; }
  MR_DEVICE int member(int number) const {
    if constexpr (S::kMembers == 1) return 0;
    return (number - first) / (end - first);
  }
  MR_DEVICE int tile(int number) const {
    if constexpr (S::kMembers == 1) return number;
    return first + (number - first) % (end - first);
  }
};

// Accumulates d_k and d_v of a block's rows over tiles of queries. `query_head`: the QueryHead of a member of the
// group. `dq` also gets the gradients of the scores: after_slice for each slice of queries, after_tile for each tile.
template <class S, class H, class K, class V, class DK, class DV, class P, class Dq>
MR_DEVICE void accumulate_dk_dv(int block, KeyRows<S, K, V>& rows, const P& pipeline, const QueryTiles<S>& tiles,
                                const H& query_head, const DK& d_k, const DV& d_v, double scale, const Dq& dq) {
  using Head = decltype(query_head(0));
  using Q = typename Head::Q;
  using DO = typename Head::DO;
  using M = typename Head::M;
  using X = typename Head::X;
  const int row = warp_first_row<S>(block);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  rows.k.finish(softmax_scale);
  rows.v.finish(1);
  float acc_dk[S::kRowTiles][S::kInner / 8][4];
  clear(acc_dk);
  float acc_dv[S::kRowTiles][S::kValues / 8][4];
  clear(acc_dv);
  const auto work = [&](int number, SmemAddress at) {
    const int tile = tiles.tile(number);
    const Head head = query_head(tiles.member(number));
    const M mask = head.mask;
    constexpr int kSlice = S::kWgmma ? 32 : 16;  // queries
    const SmemAddress row_stats =
        S::kSingleKernel ? smem_base() + kAllRowStatsOffset<S> + tile * S::kTileColumns * 8 : at + kRowStatsOffset<S>;
    MR_NO_UNROLL
    for (int slice = 0; slice < S::kTileColumns; slice += kSlice) {
      const int query = tile * S::kTileColumns + slice;
      const SmemTile<S, S::kTileColumns, S::kInner, Q::kOrder> q_tile{at};
      const SmemTile<S, S::kTileColumns, S::kValues, DO::kOrder> d_o_tile{at + kSecondTileOffset<S>};
      float scores[S::kRowTiles][kSlice / 8][4];
      float dp[S::kRowTiles][kSlice / 8][4];
      u32 squares[kSlice / 16][S::kRowTiles][2] = {};
      const auto find_squares = [&] {
        MR_UNROLL
        for (int n = 0; n < kSlice / 16 * S::kRowTiles; ++n)
          mask.find_square(
              squares[n / S::kRowTiles][n % S::kRowTiles], query + n / S::kRowTiles * 16, row + n % S::kRowTiles * 16,
              at + kMaskBitsOffset<S> + (slice + n / S::kRowTiles * 16) * kMaskRowBytes<S>, n % S::kRowTiles);
      };
      if constexpr (M::kReadsBits) find_squares();  // loads overlap with the products
      typename X::template Terms<SquarePlaces> terms[kSlice / 16][S::kRowTiles];
      if constexpr (!X::kPlain) {
        MR_UNROLL
        for (int n = 0; n < kSlice / 16 * S::kRowTiles; ++n)
          head.score.template load<S>(terms[n / S::kRowTiles][n % S::kRowTiles],
                                      SquarePlaces{query + n / S::kRowTiles * 16, row + n % S::kRowTiles * 16});
      }
      multiply_by_transpose<S, S::kInner>(scores, rows.k, q_tile, slice);
      multiply_by_transpose<S, S::kValues>(dp, rows.v, d_o_tile, slice);
      if constexpr (!M::kReadsBits) find_squares();
      finish_wgmma<S>(scores);
      finish_wgmma<S>(dp);
      const bool hides = hides_queries<S, kSlice>(row, query);
      if (X::kPlain && hides) hide_queries<S>(scores, row, query);
      if constexpr (S::kSingleKernel && S::kKeys < kBlockRows<S>) hide_rows_past_end<S>(scores, row);
      MR_UNROLL
      for (int offset = 0; offset < kSlice; offset += 16) {
        if constexpr (X::kPlain) {
          square_gradients<S>(scores, dp, offset / 8, row_stats + (slice + offset) * 8, scale_log2, mask,
                              squares[offset / 16]);
        } else {
          formula_squares<S>(scores, dp, offset / 8, row_stats + (slice + offset) * 8, head.score, terms[offset / 16],
                             hides || query + kSlice > S::kQueries, mask, squares[offset / 16], row, query + offset);
        }
      }
      if constexpr (S::kStoresDv) multiply_scores<S, S::kValues, kSlice / 16>(acc_dv, scores, 0, d_o_tile, slice);
      if constexpr (S::kStoresDk) multiply_scores<S, S::kInner, kSlice / 16>(acc_dk, dp, 0, q_tile, slice);
      dq.after_slice(dp, row, slice);
      finish_wgmma<S>(acc_dv);
      finish_wgmma<S>(acc_dk);
    }
    dq.after_tile(tile, at);
  };
  pipeline.for_each(work);
  barrier();
  float factors[S::kRowTiles][2];
  set_all(factors, static_cast<float>(scale));
  if constexpr (S::kStoresDk) store_gradient<S, S::kInner>(d_k, row, S::kKeys, acc_dk, factors);
  set_all(factors, query_head(0).mask.scale());
  if constexpr (S::kStoresDv)
    store_rows<S, S::kValues>(WarpScratch<S>(last_stage<S>()), d_v, row, S::kKeys, acc_dv, factors);
}

// The argument of kernels that do not compute d_q.
struct NoDq {
  template <class Scores>
  MR_DEVICE void after_slice(const Scores&, int, int) const {}
  MR_DEVICE void after_tile(int, SmemAddress) const {}
};

// The tiles of queries that see some of `rows` keys from `row` on.
template <class S>
MR_DEVICE TileRange query_tiles(int row, int rows) {
  constexpr int kTiles = (S::kQueries + S::kTileColumns - 1) / S::kTileColumns;
  const int first = S::kCausal && row > S::kLast ? (row - S::kLast) / S::kTileColumns : 0;
  const int last = row + rows - 1 - S::kFirst;
  const int seen = last < 0 ? 0 : last / S::kTileColumns + 1;
  const int end = S::kWindow && seen < kTiles ? seen : kTiles;
  return {first, end > first ? end : first};
}

template <class S, class H, class K, class V, class DK, class DV>
MR_DEVICE void attention_backward_dk_dv(int block, const H& query_head, const K& k, const V& v, const DK& d_k,
                                        const DV& d_v, double scale) {
  KeyRows<S, K, V> rows(k, v, block);
  const int row = block * S::kWarps * S::kRowTiles * 16;
  const TileRange seen = query_tiles<S>(row, kBlockRows<S>);
  const QueryTiles<S> tiles{seen.first, seen.end};
  const auto fetch = [&](int number, SmemAddress to) {
    const auto head = query_head(tiles.member(number));
    fetch_query_tile<S>(tiles.tile(number), to, head.q, head.d_o, head.row_stats, head.mask, row);
  };
  const auto pipeline = make_pipeline<S>(seen.first, tiles.last(), fetch);
  accumulate_dk_dv<S>(block, rows, pipeline, tiles, query_head, d_k, d_v, scale, NoDq());
}

}  // namespace mr
