// Fused attention with warp specialization, backward: d_k and d_v.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// If rows are keys: replaces scores by weights. `row_stats`: those of the tile's queries, in smem.
template <class S, int kCount>
MR_DEVICE void weights_of_columns(float (&scores)[1][kCount][4], SmemAddress row_stats, float scale_log2) {
  MR_UNROLL
  for (int n = 0; n < kCount; ++n) {
    float stats[4];
    load_smem_f32x4(stats, row_stats + (n * 8 + fragment_column()) * 8);
    MR_UNROLL
    for (int e = 0; e < 4; ++e) scores[0][n][e] = exp2_approx(scores[0][n][e] * scale_log2 - stats[e % 2 * 2]);
  }
}

template <class S, class M>
MR_DEVICE bool is_dropped(const u32 (&squares)[1][2], int n, int e) {
  return S::kDropout && (squares[0][n] & M::square_bit(e)) == 0;
}

// Rounds weights, and zeroes dropped ones.
template <class S, class M, int kCount>
MR_DEVICE void pack_kept(u32 (&to)[1][kCount / 2][4], const float (&weights)[1][kCount][4],
                         const u32 (&squares)[kCount / 2][1][2]) {
  MR_UNROLL
  for (int step = 0; step < kCount / 2; ++step) {
    MR_UNROLL
    for (int n = 0; n < 4; ++n) {
      const auto kept = [&](int e) {
        return is_dropped<S, M>(squares[step], n / 2, e) ? 0.0f : weights[0][2 * step + n / 2][e];
      };
      to[0][step][n] = pack_halves<typename S::T>(kept(n % 2 * 2), kept(n % 2 * 2 + 1));
      fence_operand(to[0][step][n]);
    }
  }
}

// Replaces dp by ds = p · (dp · mask - delta).
template <class S, class M, int kCount>
MR_DEVICE void gradients_of_columns(float (&dp)[1][kCount][4], const float (&weights)[1][kCount][4],
                                    SmemAddress row_stats, const M& mask, const u32 (&squares)[kCount / 2][1][2]) {
  MR_UNROLL
  for (int n = 0; n < kCount; ++n) {
    float stats[4];
    load_smem_f32x4(stats, row_stats + (n * 8 + fragment_column()) * 8);
    MR_UNROLL
    for (int e = 0; e < 4; ++e) {
      const float d = is_dropped<S, M>(squares[n / 2], n % 2, e) ? 0.0f : dp[0][n][e];
      dp[0][n][e] = weights[0][n][e] * (d * mask.scale() - stats[e % 2 * 2 + 1]);
    }
  }
}

// A block's sums over its heads, where other blocks have the other heads of the group: floats, kInner columns of d_k
// and then kValues of d_v for each key.
template <class S, int kColumns>
MR_DEVICE void store_partial(float* to, int row, const float (&c)[1][kColumns / 8][4], float factor) {
  constexpr int kPitch = S::kInner + S::kValues;
  MR_UNROLL
  for (int n = 0; n < kColumns / 8 * 2; ++n) {
    const int own = row + fragment_row() + n % 2 * 8;
    const float(&acc)[4] = c[0][n / 2];
    const float both[2] = {acc[n % 2 * 2] * factor, acc[n % 2 * 2 + 1] * factor};
    if (kExactTiling<S> || own < S::kKeys)
      store<2, 1, 8>(to, typename S::I(own) * kPitch + n / 2 * 8 + fragment_column(), both);
  }
}

// d_k and d_v of a group from the blocks' sums, `distance` floats from each other.
template <class S, class DK, class DV>
MR_DEVICE void add_partials(int block, const float* from, long long distance, const DK& d_k, const DV& d_v) {
  constexpr int kPitch = S::kInner + S::kValues;
  const int own = block * 256 + thread_id();
  const int row = own / kPitch;
  const int column = own % kPitch;
  if (row >= S::kKeys) return;
  float sum = 0;
  MR_UNROLL
  for (int split = 0; split < S::kHeadSplits; ++split) sum += from[split * distance + own];
  if (column < S::kInner) {
    if constexpr (S::kStoresDk) {
      if (DK::template has<S::kInner>(column)) narrow(sum, *d_k.at(row, column));
    }
  } else if constexpr (S::kStoresDv) {
    if (DV::template has<S::kValues>(column - S::kInner)) narrow(sum, *d_v.at(row, column - S::kInner));
  }
}

// Two warpgroups take turns: one starts a tile's products while the other computes between its own. That is faster
// where the products are long. Each takes a turn for every tile of the block.
template <class S>
struct Turns {
  static constexpr bool kTaken = S::kInner + S::kValues > 128;
  static_assert(!kTaken || S::kWarps == 8);
  int to_pass;  // by the second warpgroup: not after its last tile

  // The first warpgroup begins.
  MR_DEVICE explicit Turns(int tiles) : to_pass(tiles) {
    if (kTaken && tiles > 0 && warpgroup() == 1) named_barrier_arrive(2, 32 * S::kWarps);
  }
  MR_DEVICE static void take() {
    if constexpr (kTaken) named_barrier(2 + warpgroup(), 32 * S::kWarps);
  }
  MR_DEVICE void pass() {
    if (kTaken && (warpgroup() == 0 || --to_pass > 0)) named_barrier_arrive(3 - warpgroup(), 32 * S::kWarps);
  }
};

// d_v's product runs while the gradients of scores are computed, and d_k's while the next tile arrives.
template <class S, class H, class K, class V, class DK, class DV>
MR_DEVICE void attention_backward_dk_dv_specialized(int block, const H& query_head, const K& k, const V& v,
                                                    const DK& d_k, const DV& d_v, float* partials, double scale) {
  using Head = decltype(query_head(0));
  using Q = typename Head::Q;
  using DO = typename Head::DO;
  using M = typename Head::M;
  using X = typename Head::X;
  constexpr int kCount = S::kTileColumns / 8;
  ResidentRows<S, S::kInner, K> k_rows;
  k_rows.place(smem_base() + kRowsOffset<S>);
  ResidentRows<S, S::kValues, V> v_rows;
  v_rows.place(smem_base() + kSecondRowsOffset<S>);
  make_barriers<S>();
  const TileRange all = query_tiles<S>(block * kBlockRows<S>, kBlockRows<S>);
  const QueryTiles<S> numbers{all.first, all.end};
  if (is_producer<S>()) {
    const auto copy_rows = [&] {
      k_rows.copy(k, block, S::kKeys);
      v_rows.copy(v, block, S::kKeys);
    };
    const auto fetch_first = [&](int number, SmemAddress to) {
      const Head head = query_head(numbers.member(number));
      fetch_queries<S>(numbers.tile(number), to, head.q);
      fetch_query_data<S>(numbers.tile(number), to, head.row_stats, head.mask, block * kBlockRows<S>);
    };
    const auto fetch_second = [&](int number, SmemAddress to) {
      fetch_gradients<S>(numbers.tile(number), to, query_head(numbers.member(number)).d_o);
    };
    produce<S, S::kInner + S::kValues>(all.first, numbers.last(), copy_rows, fetch_first, fetch_second);
    return;
  }
  raise_registers<kConsumerRegisters<S, S::kInner + S::kValues>>();
  const TileRange own = within(query_tiles<S>(warpgroup_first_row<S>(block), 64), all);
  const int row = warp_first_row<S>(block);
  const double softmax_scale = X::kPlain ? scale : 1;  // of the logits
  const float scale_log2 = to_scale_log2(softmax_scale);
  TileConsumer<S> tiles;
  Turns<S> turns(numbers.last() - all.first);
  tiles.wait_for_rows();
  k_rows.finish(softmax_scale);
  float acc_dk[1][S::kInner / 8][4];
  clear(acc_dk);
  float acc_dv[1][S::kValues / 8][4];
  clear(acc_dv);
  u32 packed[1][kCount / 2][4];
  int previous = -1;  // the stage whose queries are being multiplied
  const auto work = [&](int member, int tile, int stage) {
    const Head head = query_head(member);
    const int query = tile * S::kTileColumns;
    const SmemAddress at = stage_address<S>(stage);
    const SmemTile<S, S::kTileColumns, S::kInner, Q::kOrder> q_tile{at};
    const SmemTile<S, S::kTileColumns, S::kValues, DO::kOrder> d_o_tile{at + kSecondTileOffset<S>};
    const SmemAddress row_stats = at + kRowStatsOffset<S>;
    float scores[1][kCount][4];
    float dp[1][kCount][4];
    turns.take();
    multiply_by_transpose<S, S::kInner>(scores, k_rows, q_tile, 0);
    tiles.wait_for_second(stage);
    multiply_by_transpose<S, S::kValues>(dp, v_rows, d_o_tile, 0);
    turns.pass();
    u32 squares[kCount / 2][1][2] = {};
    MR_UNROLL
    for (int n = 0; n < kCount / 2; ++n)
      head.mask.find_square(squares[n][0], query + n * 16, row, at + kMaskBitsOffset<S> + n * 16 * kMaskRowBytes<S>, 0);
    typename X::template Terms<SquarePlaces> terms[kCount / 2][1];
    if constexpr (!X::kPlain) {
      MR_UNROLL
      for (int n = 0; n < kCount / 2; ++n) head.score.template load<S>(terms[n][0], SquarePlaces{query + n * 16, row});
    }
    finish_wgmma<S, 1>(scores);
    if (previous >= 0) tiles.template release<Half::first>(previous);
    const bool hides = hides_queries<S, S::kTileColumns>(row, query);
    if constexpr (X::kPlain) {
      if (hides) hide_queries<S>(scores, row, query);
      weights_of_columns<S>(scores, row_stats, scale_log2);
      pack_kept<S, M>(packed, scores, squares);
      if constexpr (S::kStoresDv) {
        multiply_by_tile<S, S::kValues>(acc_dv, packed, d_o_tile, 0, 0);
        finish_wgmma<S, 1>(dp);
      } else {
        finish_wgmma<S>(dp);
      }
      gradients_of_columns<S, M>(dp, scores, row_stats, head.mask, squares);
    } else {
      finish_wgmma<S>(dp);
      MR_UNROLL
      for (int n = 0; n < kCount / 2; ++n)
        formula_squares<S>(scores, dp, 2 * n, row_stats + n * 16 * 8, head.score, terms[n],
                           hides || query + S::kTileColumns > S::kQueries, head.mask, squares[n], row, query + n * 16);
      pack_scores<S>(packed, scores);
      if constexpr (S::kStoresDv) multiply_by_tile<S, S::kValues>(acc_dv, packed, d_o_tile, 0, 0);
    }
    finish_wgmma<S>(acc_dv);
    tiles.template release<Half::second>(stage);
    pack_scores<S>(packed, dp);
    if constexpr (S::kStoresDk) multiply_by_tile<S, S::kInner>(acc_dk, packed, q_tile, 0, 0);
    previous = stage;
  };
  const auto skip = [&](int count) {
    MR_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      tiles.skip(1);
      turns.take();
      turns.pass();
    }
  };
  MR_NO_UNROLL
  for (int member = 0; member < S::kMembers; ++member) {
    skip(own.first - all.first);
    MR_NO_UNROLL
    for (int tile = own.first; tile < own.end; ++tile) work(member, tile, tiles.wait());
    finish_wgmma<S>(acc_dv);
    finish_wgmma<S>(acc_dk);
    if (previous >= 0) tiles.template release<Half::first>(previous);
    previous = -1;
    skip(all.end - own.end);
  }
  if constexpr (S::kHeadSplits > 1) {
    store_partial<S, S::kInner>(partials, row, acc_dk, static_cast<float>(scale));
    store_partial<S, S::kValues>(partials + S::kInner, row, acc_dv, query_head(0).mask.scale());
    return;
  }
  consumer_barrier<S>();
  float factors[1][2];
  const WarpScratch<S> scratch(smem_base());
  set_all(factors, static_cast<float>(scale));
  if constexpr (S::kStoresDk) store_rows<S, S::kInner>(scratch, d_k, row, S::kKeys, acc_dk, factors);
  set_all(factors, query_head(0).mask.scale());
  if constexpr (S::kStoresDv) store_rows<S, S::kValues>(scratch, d_v, row, S::kKeys, acc_dv, factors);
}

}  // namespace mr
