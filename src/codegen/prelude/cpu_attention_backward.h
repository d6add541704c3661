// Fused attention on the CPU: backward. A thread owns a group of heads, or some of the group's keys. For each tile of
// keys in turn, it visits all queries. It computes five products. Every sum has a fixed order. Test:
// tests/codegen/cpu_attention_test.cpp
#pragma once

namespace mr {

template <class S, class X>
struct BackwardHead {
  typename S::Q q;
  typename S::K k;
  Matrix<const typename S::T> v, o;
  Matrix<const float> log_sums;
  Matrix<const typename S::T> d_o;
  typename S::Dq d_q;
  typename S::Dk d_k;
  Matrix<typename S::T> d_v;  // null where S::kStoresDq, Dk or Dv is false
  AttentionMask mask;
  X score;
  float scale;
};

// Some queries of a head, packed, and for each the sum of its weights times their gradients, which is d_o · o.
template <class S>
struct PackedQueries {
  float* q;         // [query][inner]
  float* d_o;       // [query][values]
  float* log_sums;  // [query]
  float* inner;     // [query]

  PackedQueries(ScratchFloats& floats, i64 queries)
      : q(floats.take(queries * kInnerPacked<S>)),
        d_o(floats.take(queries * kValuesPacked<S>)),
        log_sums(floats.take(queries)),
        inner(floats.take(queries)) {}

  PackedQueries from(i64 query) const {
    PackedQueries made = *this;
    made.q += query * kInnerPacked<S>;
    made.d_o += query * kValuesPacked<S>;
    made.log_sums += query;
    made.inner += query;
    return made;
  }

  template <class Head>
  void pack(const Head& head, i64 first, i64 queries) const {
    const i64 rows = round_up(queries, kRowStep);
    pack_rows(q, rows, kInnerPacked<S>, head.q, first, queries, S::kInner);
    pack_rows(d_o, rows, kValuesPacked<S>, head.d_o, first, queries, S::kValues);
    for (i64 row = 0; row < queries; ++row) {
      log_sums[row] = *head.log_sums.at(first + row);
      const typename S::T* const own = head.o.at(first + row);
      float sum = 0;
      for (i64 c = 0; c < S::kValues; ++c)
        sum += d_o[row * kValuesPacked<S> + c] * float(widen(own[c * head.o.column]));
      inner[row] = sum;
    }
  }
};

// A tile of keys, packed.
template <class S>
struct PackedKeys {
  float* keys;           // [kTileKeys][inner]
  float* keys_across;    // [inner][kTileKeys]
  float* values_across;  // [values][kTileKeys]

  explicit PackedKeys(ScratchFloats& floats)
      : keys(floats.take(S::kTileKeys * kInnerPacked<S>)),
        keys_across(floats.take(S::kInner * S::kTileKeys)),
        values_across(floats.take(S::kValues * S::kTileKeys)) {}

  template <class Head>
  void pack(const Head& head, i64 key) const {
    const i64 count = least(S::kTileKeys, S::kKeys - key);
    pack_rows(keys, S::kTileKeys, kInnerPacked<S>, head.k, key, count, S::kInner);
    pack_columns(keys_across, S::kTileKeys, head.k, key, count, S::kInner);
    pack_columns(values_across, S::kTileKeys, head.v, key, count, S::kValues);
  }
};

// A tile of scores and of their gradients.
template <class S>
struct GradientTile {
  float* weights;    // [kTileQueries][kTileKeys]: scores, then weights after the dropout
  float* gradients;  // [kTileQueries][kTileKeys]: of the weights, then of the scores
  float* mask;       // [kTileKeys]

  explicit GradientTile(ScratchFloats& floats)
      : weights(floats.take(S::kTileQueries * S::kTileKeys)),
        gradients(floats.take(S::kTileQueries * S::kTileKeys)),
        mask(floats.take(S::kTileKeys + kLanes<float>)) {}

  void multiply_operands(const PackedQueries<S>& queries, const PackedKeys<S>& keys, const ScoreTile<S>& tile) const {
    multiply<Left::rows, Result::replace>(weights, S::kTileKeys, queries.q, kInnerPacked<S>, keys.keys_across,
                                          S::kTileKeys, tile.packed_queries(), tile.packed_keys(), S::kInner);
    multiply<Left::rows, Result::replace>(gradients, S::kTileKeys, queries.d_o, kValuesPacked<S>, keys.values_across,
                                          S::kTileKeys, tile.packed_queries(), tile.packed_keys(), S::kValues);
  }

  // For each vector of a row: use(column, score, weight after the dropout, gradient of the logit), where hidden ones
  // are zero.
  template <class Head, class Use>
  MR_INLINE void for_each_vector(const PackedQueries<S>& queries, const Head& head, const ScoreTile<S>& tile, i64 row,
                                 const Use& use) const {
    const SeenKeys seen = tile.seen(row);
    const VecF zero = splat<VecF>(0);
    const i64 query = tile.query + row;
    if constexpr (S::kDropout) read_mask<S>(mask, head.mask, query, tile.key, tile.keys);
    for (i64 c = 0; c < tile.keys; c += kLanes<float>) {
      const VecF x = from_lanes(weights + row * S::kTileKeys + c) * head.scale;
      VecF p = exp(head.score.logit(x, query, tile.key + c, tile.keys - c) - queries.log_sums[row]);
      VecF g = from_lanes(gradients + row * S::kTileKeys + c);
      VecF dropped = p;
      if constexpr (S::kDropout) {
        const VecF kept = from_lanes(mask + c);
        g = g * kept;
        dropped = p * kept;
      }
      g = p * (g - queries.inner[row]);
      if (!seen.sees_all(c)) {
        g = select(seen.at(c), g, zero);
        dropped = select(seen.at(c), dropped, zero);
      }
      use(c, x, dropped, g);
    }
  }
};

template <class S>
struct BackwardMemory {
  PackedQueries<S> queries;  // of all heads of a group, one after the other
  PackedKeys<S> keys;
  GradientTile<S> tile;
  float* d_k;  // [kTileKeys][inner]
  float* d_v;  // [kTileKeys][values]
  float* d_q;  // [query of all heads of a group][inner]
  i64 bytes;

  explicit BackwardMemory(char* scratch) : BackwardMemory(scratch, ScratchFloats{scratch}) {}

 private:
  BackwardMemory(const char* scratch, ScratchFloats floats)
      : queries(floats, S::kHeads * kQueriesPacked<S>),
        keys(floats),
        tile(floats),
        d_k(floats.take(S::kTileKeys * kInnerPacked<S>)),
        d_v(floats.take(S::kTileKeys * kValuesPacked<S>)),
        d_q(floats.take(S::kHeads * kQueriesPacked<S> * kInnerPacked<S>)),
        bytes(floats.at - scratch) {}
};

// Replaces the scores of a tile by weights, and the gradients of weights by those of scores.
template <class S, class Head>
void find_gradients(const GradientTile<S>& to, const PackedQueries<S>& queries, const Head& head,
                    const ScoreTile<S>& tile) {
  for (i64 row = 0; row < tile.queries; ++row) {
    const SeenKeys seen = tile.seen(row);
    to.for_each_vector(queries, head, tile, row, [&](i64 c, VecF x, VecF dropped, VecF g) {
      to_lanes(to.weights + row * S::kTileKeys + c, dropped);
      if constexpr (S::kStoresDq || S::kStoresDk) {
        VecF d_score = head.score.d_score(x, g, tile.query + row, tile.key + c, tile.keys - c) * head.scale;
        if (!seen.sees_all(c)) d_score = select(seen.at(c), d_score, splat<VecF>(0));
        to_lanes(to.gradients + row * S::kTileKeys + c, d_score);
      }
    });
  }
}

// Adds a tile's share of all gradients. `first`: its first query among those of the group.
template <class S, class Head>
void add_gradients(const BackwardMemory<S>& memory, const Head& head, const ScoreTile<S>& tile, i64 first) {
  const PackedQueries<S> queries = memory.queries.from(first);
  memory.tile.multiply_operands(queries, memory.keys, tile);
  find_gradients<S>(memory.tile, queries, head, tile);
  const i64 keys = tile.packed_keys();
  if constexpr (S::kStoresDv)
    multiply<Left::columns, Result::add>(memory.d_v, kValuesPacked<S>, memory.tile.weights, S::kTileKeys, queries.d_o,
                                         kValuesPacked<S>, keys, kValuesPacked<S>, tile.queries);
  if constexpr (S::kStoresDk)
    multiply<Left::columns, Result::add>(memory.d_k, kInnerPacked<S>, memory.tile.gradients, S::kTileKeys, queries.q,
                                         kInnerPacked<S>, keys, kInnerPacked<S>, tile.queries);
  if constexpr (S::kStoresDq)
    multiply<Left::rows, Result::add>(memory.d_q + first * kInnerPacked<S>, kInnerPacked<S>, memory.tile.gradients,
                                      S::kTileKeys, memory.keys.keys, kInnerPacked<S>, tile.packed_queries(),
                                      kInnerPacked<S>, tile.keys);
}

// The gradients of a group of heads for some of its keys: tiles from `begin` to `end`. The gradient of the queries
// stays in memory.
template <class S, class HeadOf>
void backward_of_keys(const BackwardMemory<S>& memory, const HeadOf& head_of, i64 group, i64 begin, i64 end) {
  clear(memory.d_q, S::kHeads * kQueriesPacked<S> * kInnerPacked<S>);
  for (i64 member = 0; member < S::kHeads; ++member)
    memory.queries.from(member * kQueriesPacked<S>).pack(head_of(group, member), 0, S::kQueries);
  for (i64 key = begin * S::kTileKeys; key < least(end * S::kTileKeys, S::kKeys); key += S::kTileKeys) {
    const auto first = head_of(group, 0);
    memory.keys.pack(first, key);
    clear(memory.d_k, S::kTileKeys * kInnerPacked<S>);
    clear(memory.d_v, S::kTileKeys * kValuesPacked<S>);
    for (i64 member = 0; member < S::kHeads; ++member) {
      const auto head = head_of(group, member);
      for (i64 query = 0; query < S::kQueries; query += S::kTileQueries) {
        const ScoreTile<S> tile(query, key);
        if (!tile.is_hidden()) add_gradients<S>(memory, head, tile, member * kQueriesPacked<S> + query);
      }
    }
    const i64 keys = least(S::kTileKeys, S::kKeys - key);
    if constexpr (S::kStoresDk) store_rows(first.d_k, key, keys, S::kInner, memory.d_k, kInnerPacked<S>);
    if constexpr (S::kStoresDv) store_rows(first.d_v, key, keys, S::kValues, memory.d_v, kValuesPacked<S>);
  }
}

// Groups from `begin` to `end`, each by one thread.
template <class S, class HeadOf>
void attention_backward(const HeadOf& head_of, i64 begin, i64 end, char* scratch) {
  const BackwardMemory<S> memory(scratch);
  for (i64 group = begin; group < end; ++group) {
    backward_of_keys<S>(memory, head_of, group, 0, kKeysPacked<S> / S::kTileKeys);
    for (i64 member = 0; S::kStoresDq && member < S::kHeads; ++member)
      store_rows(head_of(group, member).d_q, 0, S::kQueries, S::kInner,
                 memory.d_q + member * kQueriesPacked<S> * kInnerPacked<S>, kInnerPacked<S>);
  }
}

// One share of a group's keys; each has memory of its own, where the gradients of the queries wait to be summed.
template <class S, class HeadOf>
void attention_backward_share(const HeadOf& head_of, i64 group, i64 share, char* scratch) {
  constexpr i64 kTiles = kKeysPacked<S> / S::kTileKeys;
  const BackwardMemory<S> memory(scratch);
  backward_of_keys<S>(memory, head_of, group, kTiles * share / S::kSplits, kTiles * (share + 1) / S::kSplits);
}

// Sums what the shares of a group left in their memories, in order, for queries from tile `begin` to `end`.
template <class S, class HeadOf>
void sum_shares(const HeadOf& head_of, i64 group, i64 begin, i64 end, char* scratch, i64 share_bytes) {
  constexpr i64 kTiles = kQueriesPacked<S> / S::kTileQueries;
  for (i64 tile = begin; tile < end; ++tile) {
    const i64 member = tile / kTiles;
    const i64 query = tile % kTiles * S::kTileQueries;
    const i64 at = (member * kQueriesPacked<S> + query) * kInnerPacked<S>;
    float* const sums = BackwardMemory<S>(scratch).d_q + at;
    for (i64 share = 1; share < S::kSplits; ++share) {
      const float* const own = BackwardMemory<S>(scratch + share * share_bytes).d_q + at;
      for (i64 e = 0; e < S::kTileQueries * kInnerPacked<S>; ++e) sums[e] += own[e];
    }
    store_rows(head_of(group, member).d_q, query, least(S::kTileQueries, S::kQueries - query), S::kInner, sums,
               kInnerPacked<S>);
  }
}

}  // namespace mr
