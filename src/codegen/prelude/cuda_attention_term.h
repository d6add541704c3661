// Fused attention, backward: the gradient of a term of the scores, such as a bias.
// Test: tests/measure/attention_trial_test.cpp
#pragma once

namespace mr {

// The operands of a head.
template <class Query, class Key, class Value, class Gradient, class Mask, class Score>
struct ScoreHead {
  Query q;
  Key k;
  Value v;
  Gradient d_o;
  const float* row_stats;
  Mask mask;
  Score score;
};
template <class Q, class K, class V, class DO, class M, class X>
MR_DEVICE ScoreHead<Q, K, V, DO, M, X> make_score_head(const Q& q, const K& k, const V& v, const DO& d_o,
                                                       const float* row_stats, const M& mask, const X& score) {
  return {q, k, v, d_o, row_stats, mask, score};
}

// A stage of this kernel's pipeline: the tile of keys and values, and the block's rows of q and d_o.
template <class S>
constexpr int kTermRowsOffset = kBothTilesBytes<S>;
template <class S>
constexpr int kTermSecondRowsOffset = kTermRowsOffset<S> + kTileBytes<S, kBlockRows<S>, S::kInner>;
template <class S>
constexpr int kTermStageBytes = kTermSecondRowsOffset<S> + kTileBytes<S, kBlockRows<S>, S::kValues>;

// A fragment of 16 rows and 16 columns of a tile.
template <class P>
MR_DEVICE void load_a(u32 (&a)[4], const P& tile, int row, int column) {
  if constexpr (P::kOrder == Order::row_major) {
    ldmatrix_x4(a, across_lines(tile) + row * kPaddedPitch<P::kLength> + column * 2);
  } else {
    ldmatrix_x4_trans(a, along_lines(tile) + column * kPaddedPitch<P::kLength> + row * 2);
  }
}

// c = a warp's rows · tileᵀ, for as many rows of the tile from `row` on as c has columns. `rows`: of all warps.
template <class S, int kColumns, int kCount, class R, class P>
MR_DEVICE void multiply_tiles(float (&c)[S::kRowTiles][kCount][4], const R& rows, const P& tile, int row) {
  clear(c);
  MR_UNROLL
  for (int step = 0; step < kColumns / 16; ++step) {
    u32 a[S::kRowTiles][1][4];
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile)
      load_a(a[row_tile][0], rows, (warp_id() * S::kRowTiles + row_tile) * 16, step * 16);
    MR_UNROLL
    for (int pair = 0; pair < kCount / 2; ++pair) {
      u32 b[4];
      load_b_transposed(b, tile, row + pair * 16, step * 16);
      mma_pair<S>(c, pair, a, 0, b);
    }
  }
}

template <class S>
MR_DEVICE void load_row_stats(RowStats<S>& to, const float* row_stats, int row) {
  MR_UNROLL
  for (int n = 0; n < S::kRowTiles * 2; ++n) {
    const int own = row + n / 2 * 16 + fragment_row() + n % 2 * 8;
    const bool in_bounds = kExactTiling<S> || own < S::kQueries;
    to.lse[n / 2][n % 2] = in_bounds ? row_stats[typename S::I(own) * 2] : 0.0f;
    to.delta[n / 2][n % 2] = in_bounds ? row_stats[typename S::I(own) * 2 + 1] : 0.0f;
  }
}

// Stores a number for each score: element (query, key) of `to` is at query · to_query + key · to_key. kAlign: the
// alignment of 8 neighbouring keys, in bytes; 0: they are not neighbours.
template <class S, int kAlign, int kCount, class E>
MR_DEVICE void store_scores(const float (&from)[S::kRowTiles][kCount][4], int row, int key, E* to,
                            typename S::I to_query, typename S::I to_key) {
  using I = typename S::I;
  MR_UNROLL
  for (int n = 0; n < S::kRowTiles * 2 * kCount / 4; ++n) {
    const int half = n % 2;
    const int row_tile = n / 2 % S::kRowTiles;
    const int slice = n / 2 / S::kRowTiles;
    const KeyPlaces<S> places{row + row_tile * 16 + fragment_row() + half * 8, key + slice * 32};
    float values[8];
    MR_UNROLL
    for (int l = 0; l < 8; ++l) values[l] = from[row_tile][slice * 4 + l / 2][2 * half + l % 2];
    const I own = I(places.query) * to_query;
    if constexpr (KeyPlaces<S>::kNeighbours && kAlign > 0) {
      if (places.query < S::kQueries && places.key_at(7) < S::kKeys)
        store<8, 1, kAlign>(to, own + places.key_at(0), values);
    } else {
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        if (places.query < S::kQueries && places.key_at(l) < S::kKeys)
          narrow(values[l], to[own + I(places.key_at(l)) * to_key]);
      }
    }
  }
}

// The gradient of a term for a block's queries and one tile of keys: the sum over the heads that share the term, one
// after the other. head(number) is a ScoreHead. `to`, kAlign: as for store_scores.
template <class S, int kAlign, class H, class E>
MR_DEVICE void attention_backward_term(int block, int tile, int heads, const H& head, E* to, typename S::I to_query,
                                       typename S::I to_key) {
  static_assert(!S::kWgmma && S::kStages * kTermStageBytes<S> == S::kLaunchSmemBytes);
  const auto fetch = [&](int number) {
    const auto own = head(number);
    const SmemAddress stage = smem_base() + number % S::kStages * kTermStageBytes<S>;
    fetch_key_tile<S>(tile, stage, own.k, own.v);
    const int first = block * kBlockRows<S>;
    fetch_tile<S, kBlockRows<S>, S::kInner, RowOrder::in_order>(stage + kTermRowsOffset<S>, own.q, first, S::kQueries);
    fetch_tile<S, kBlockRows<S>, S::kValues, RowOrder::in_order>(stage + kTermSecondRowsOffset<S>, own.d_o, first,
                                                                 S::kQueries);
  };
  const int row = warp_first_row<S>(block);
  const bool hides = hides_keys<S>(row, tile * S::kTileColumns);
  float acc[S::kRowTiles][S::kTileColumns / 8][4];
  clear(acc);
  const auto work = [&](int number) {
    const SmemAddress at = smem_base() + number % S::kStages * kTermStageBytes<S>;
    const auto own = head(number);
    using Head = decltype(head(0));
    using X = decltype(Head::score);
    RowStats<S> stats;
    load_row_stats<S>(stats, own.row_stats, row);
    const SmemTile<S, S::kTileColumns, S::kInner, decltype(Head::k)::kOrder> keys{at};
    const SmemTile<S, S::kTileColumns, S::kValues, decltype(Head::v)::kOrder> values{at + kSecondTileOffset<S>};
    const SmemTile<S, kBlockRows<S>, S::kInner, decltype(Head::q)::kOrder> rows{at + kTermRowsOffset<S>};
    const SmemTile<S, kBlockRows<S>, S::kValues, decltype(Head::d_o)::kOrder> d_rows{at + kTermSecondRowsOffset<S>};
    MR_UNROLL
    for (int slice = 0; slice < S::kTileColumns; slice += 32) {
      const int key = tile * S::kTileColumns + slice;
      typename X::template Terms<KeyPlaces<S>> terms[1][S::kRowTiles][2];
      load_terms<S>(terms, own.score, row, key);
      u32 mask_bits[1][S::kRowTiles][2];
      find_mask_bits<S>(mask_bits, own.mask, row, key);
      float scores[S::kRowTiles][4][4];
      float dp[S::kRowTiles][4][4];
      multiply_tiles<S, S::kInner>(scores, rows, keys, slice);
      multiply_tiles<S, S::kValues>(dp, d_rows, values, slice);
      gradients_of_logits<S, X>(scores, dp, 0, stats, own.score, terms[0], hides, own.mask, mask_bits[0], row, key,
                                [&](float& x, float g, const auto& read, int l, int query, int own_key) {
                                  x = own.score.d_term(x, g, read, l, query, own_key);
                                });
      MR_UNROLL
      for (int n = 0; n < S::kRowTiles * 16; ++n)
        acc[n / 16][slice / 8 + n / 4 % 4][n % 4] += scores[n / 16][n / 4 % 4][n % 4];
    }
  };
  if constexpr (S::kStages > 1) fetch(0);
  cp_async_commit();
  MR_NO_UNROLL
  for (int number = 0; number < heads; ++number) {
    const int ahead = number + S::kStages - 1;
    if (ahead < heads) fetch(ahead);
    cp_async_commit();
    cp_async_wait<S::kStages - 1>();
    barrier();
    work(number);
    barrier();
  }
  store_scores<S, kAlign>(acc, row, tile * S::kTileColumns, to, to_query, to_key);
}

}  // namespace mr
