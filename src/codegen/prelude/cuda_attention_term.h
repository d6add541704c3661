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

// A warp's rows as A fragments, word by word: all of smem is in use.
template <class S, int kColumns, class M>
MR_DEVICE void load_fragments(u32 (&to)[S::kRowTiles][kColumns / 16][4], const M& from, int first) {
  const int row = first + fragment_row_in<M::kOrder>();
  const auto* const own = from.at(row, fragment_column_in<M::kOrder>());
  MR_UNROLL
  for (int n = 0; n < S::kRowTiles * (kColumns / 16) * 4; ++n) {
    const int rows = n / 4 / (kColumns / 16) * 16 + n % 2 * 8;
    const int columns = n / 4 % (kColumns / 16) * 16 + n % 4 / 2 * 8;
    const bool has = M::kColumns == kColumns || columns + fragment_column_in<M::kOrder>() < M::kColumns;
    const bool in_bounds = has && (kExactTiling<S> || row + rows < S::kQueries);
    const u32 word = in_bounds ? *reinterpret_cast<const u32*>(from.advance(own, rows, columns)) : 0;
    to[n / 4 / (kColumns / 16)][n / 4 % (kColumns / 16)][n % 4] = as_fragment<M::kOrder>(word);
  }
}

// c = fragments · tileᵀ, for as many rows of the tile from `row` on as c has columns.
template <class S, int kColumns, int kCount, class P>
MR_DEVICE void multiply_fragments(float (&c)[S::kRowTiles][kCount][4], const u32 (&a)[S::kRowTiles][kColumns / 16][4],
                                  const P& tile, int row) {
  clear(c);
  MR_UNROLL
  for (int step = 0; step < kColumns / 16; ++step) {
    MR_UNROLL
    for (int pair = 0; pair < kCount / 2; ++pair) {
      u32 b[4];
      load_b_transposed(b, tile, row + pair * 16, step * 16);
      mma_pair<S>(c, pair, a, step, b);
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

// Stores a number for each score: element (query, key) of `to` is at query · to_query + key · to_key. kAlign: that of 8
// neighbouring keys, in bytes; 0: they are not neighbours.
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
  static_assert(!S::kWgmma && kSmemBytes<S> == S::kLaunchSmemBytes);
  const auto fetch = [&](int number, SmemAddress stage) {
    const auto own = head(number);
    fetch_key_tile<S>(tile, stage, own.k, own.v);
  };
  const auto pipeline = make_pipeline<S>(0, heads, fetch);
  const int row = warp_first_row<S>(block);
  const bool hides = hides_keys<S>(row, tile * S::kTileColumns);
  float acc[S::kRowTiles][S::kTileColumns / 8][4];
  clear(acc);
  const auto work = [&](int number, SmemAddress at) {
    const auto own = head(number);
    using Head = decltype(head(0));
    using K = decltype(Head::k);
    using V = decltype(Head::v);
    using X = decltype(Head::score);
    u32 q_rows[S::kRowTiles][S::kInner / 16][4];
    load_fragments<S, S::kInner>(q_rows, own.q, row);
    u32 d_rows[S::kRowTiles][S::kValues / 16][4];
    load_fragments<S, S::kValues>(d_rows, own.d_o, row);
    RowStats<S> stats;
    load_row_stats<S>(stats, own.row_stats, row);
    const SmemTile<S, S::kTileColumns, S::kInner, K::kOrder> keys{at};
    const SmemTile<S, S::kTileColumns, S::kValues, V::kOrder> values{at + kSecondTileOffset<S>};
    MR_UNROLL
    for (int slice = 0; slice < S::kTileColumns; slice += 32) {
      const int key = tile * S::kTileColumns + slice;
      typename X::template Terms<KeyPlaces<S>> terms[1][S::kRowTiles][2];
      load_terms<S>(terms, own.score, row, key);
      u32 mask_bits[1][S::kRowTiles][2];
      find_mask_bits<S>(mask_bits, own.mask, row, key);
      float scores[S::kRowTiles][4][4];
      float dp[S::kRowTiles][4][4];
      multiply_fragments<S, S::kInner>(scores, q_rows, keys, slice);
      multiply_fragments<S, S::kValues>(dp, d_rows, values, slice);
      gradients_of_logits<S, X>(scores, dp, 0, stats, own.score, terms[0], hides, own.mask, mask_bits[0], row, key,
                                [&](float& x, float g, const auto& read, int l, int query, int own_key) {
                                  x = own.score.d_term(x, g, read, l, query, own_key);
                                });
      MR_UNROLL
      for (int n = 0; n < S::kRowTiles * 16; ++n)
        acc[n / 16][slice / 8 + n / 4 % 4][n % 4] += scores[n / 16][n / 4 % 4][n % 4];
    }
  };
  pipeline.for_each(work);
  store_scores<S, kAlign>(acc, row, tile * S::kTileColumns, to, to_query, to_key);
}

}  // namespace mr
