// Fused attention on the CPU: the forward pass, with the online softmax over tiles of keys.
// Test: tests/codegen/cpu_attention_test.cpp
#pragma once

namespace mr {

template <class S, class X>
struct ForwardHead {
  typename S::Q q;
  typename S::K k;
  Matrix<const typename S::T> v;
  Matrix<typename S::T> o;
  Matrix<float> log_sums;
  AttentionMask mask;
  X score;
  float scale;
};

// A thread's memory. Keys and values of one group of heads are packed once: keys transposed, tile by tile.
template <class S>
struct ForwardMemory {
  float* keys;     // [tile][inner][kTileKeys]
  float* values;   // [key][values]
  float* query;    // [kTileQueries][inner]
  float* scores;   // [kTileQueries][kTileKeys]
  float* sums;     // [kTileQueries][values], the weighted sums of values
  float* mask;     // [kTileKeys]
  float* largest;  // [kTileQueries]: of the logits so far
  float* total;    // [kTileQueries]: of the exponentials so far, relative to the largest
  i64 bytes;

  explicit ForwardMemory(char* scratch) {
    ScratchFloats floats{scratch};
    keys = floats.take(kKeysPacked<S> * S::kInner);
    values = floats.take(kKeysPacked<S> * kValuesPacked<S>);
    query = floats.take(S::kTileQueries * kInnerPacked<S>);
    scores = floats.take(S::kTileQueries * S::kTileKeys);
    sums = floats.take(S::kTileQueries * kValuesPacked<S>);
    mask = floats.take(S::kTileKeys + kLanes<float>);
    largest = floats.take(S::kTileQueries);
    total = floats.take(S::kTileQueries);
    bytes = floats.at - scratch;
  }
};

template <class S, class Head>
void pack_group(const ForwardMemory<S>& memory, const Head& head) {
  for (i64 key = 0; key < S::kKeys; key += S::kTileKeys)
    pack_columns(memory.keys + key * S::kInner, S::kTileKeys, head.k, key, least(S::kTileKeys, S::kKeys - key),
                 S::kInner);
  pack_rows(memory.values, kKeysPacked<S>, kValuesPacked<S>, head.v, 0, S::kKeys, S::kValues);
}

// Replaces a row of scores by exponentials relative to the new largest logit, and rescales the sums.
template <class S, class Head>
MR_INLINE void update_row(const ForwardMemory<S>& memory, const Head& head, const ScoreTile<S>& tile, i64 row) {
  float* const scores = memory.scores + row * S::kTileKeys;
  const SeenKeys seen = tile.seen(row);
  const VecF hidden = splat<VecF>(-infinity());
  VecF top = hidden;
  for (i64 c = 0; c < tile.keys; c += kLanes<float>) {
    VecF x = head.score.logit(from_lanes(scores + c) * head.scale, tile.query + row, tile.key + c, tile.keys - c);
    if (!seen.sees_all(c)) x = select(seen.at(c), x, hidden);
    to_lanes(scores + c, x);
    top = select(x > top, x, top);
  }
  const float before = memory.largest[row];
  const float largest = Larger::of(across<Larger>(top), before);
  // If every score so far is hidden, exponentials are relative to 0: -inf less -inf would be NaN.
  const float reference = largest == -infinity() ? 0.0f : largest;
  VecF sum = splat<VecF>(0);
  for (i64 c = 0; c < tile.keys; c += kLanes<float>) {
    const VecF p = exp(from_lanes(scores + c) - reference);
    to_lanes(scores + c, p);
    sum = sum + p;
  }
  if constexpr (S::kDropout) {
    draw_mask<S>(memory.mask, head.mask, tile.query + row, tile.key, tile.keys);
    if constexpr (S::kMaskBits) store_mask<S>(head.mask, memory.mask, tile.query + row, tile.key, tile.keys);
    for (i64 c = 0; c < tile.keys; c += kLanes<float>)
      to_lanes(scores + c, select(seen.at(c), from_lanes(scores + c) * from_lanes(memory.mask + c), splat<VecF>(0)));
  }
  float rescale = 1;
  if (largest != before) {
    rescale = exp(splat<VecF>(before - reference)).registers[0][0];
    float* const sums = memory.sums + row * kValuesPacked<S>;
    for (i64 c = 0; c < kValuesPacked<S>; c += kLanes<float>) to_lanes(sums + c, from_lanes(sums + c) * rescale);
  }
  memory.largest[row] = largest;
  memory.total[row] = memory.total[row] * rescale + across<Added>(sum);
}

// The bits of keys that no query of the tile sees, so that the stored mask is complete.
template <class S, class Head>
void store_hidden_bits(const ForwardMemory<S>& memory, const Head& head, const ScoreTile<S>& tile, i64 computed) {
  const i64 all = least(S::kTileKeys, S::kKeys - tile.key);
  const i64 from = computed / 8 * 8;
  for (i64 row = 0; row < tile.queries && from < all; ++row) {
    draw_mask<S>(memory.mask, head.mask, tile.query + row, tile.key + from, all - from);
    store_mask<S>(head.mask, memory.mask, tile.query + row, tile.key + from, all - from);
  }
}

template <class S, class Head>
void visit_keys(const ForwardMemory<S>& memory, const Head& head, const ScoreTile<S>& tile) {
  const i64 rows = tile.packed_queries();
  multiply<Left::rows, Result::replace>(memory.scores, S::kTileKeys, memory.query, kInnerPacked<S>,
                                        memory.keys + tile.key * S::kInner, S::kTileKeys, rows, tile.packed_keys(),
                                        S::kInner);
  for (i64 row = 0; row < tile.queries; ++row) update_row<S>(memory, head, tile, row);
  multiply<Left::rows, Result::add>(memory.sums, kValuesPacked<S>, memory.scores, S::kTileKeys,
                                    memory.values + tile.key * kValuesPacked<S>, kValuesPacked<S>, rows,
                                    kValuesPacked<S>, tile.keys);
}

template <class S, class Head>
void forward_tile(const ForwardMemory<S>& memory, const Head& head, i64 query) {
  const ScoreTile<S> first(query, 0);
  const i64 rows = first.packed_queries();
  pack_rows(memory.query, rows, kInnerPacked<S>, head.q, query, first.queries, S::kInner);
  clear(memory.sums, rows * kValuesPacked<S>);
  for (i64 row = 0; row < rows; ++row) {
    memory.largest[row] = -infinity();
    memory.total[row] = 0;
  }
  for (i64 key = 0; key < S::kKeys; key += S::kTileKeys) {
    const ScoreTile<S> tile(query, key);
    if (!tile.is_hidden()) visit_keys<S>(memory, head, tile);
    if constexpr (S::kDropout && S::kMaskBits)
      store_hidden_bits<S>(memory, head, tile, tile.is_hidden() ? 0 : tile.keys);
  }
  for (i64 row = 0; row < first.queries; ++row) {
    const float total = memory.total[row];
    float* const sums = memory.sums + row * kValuesPacked<S>;
    for (i64 c = 0; c < kValuesPacked<S>; c += kLanes<float>) to_lanes(sums + c, from_lanes(sums + c) * (1 / total));
    *head.log_sums.at(query + row) = __builtin_logf(total) + memory.largest[row];
  }
  store_rows(head.o, query, first.queries, S::kValues, memory.sums, kValuesPacked<S>);
}

// The tiles of queries from number `begin` to `end`, counted through all heads of all groups. head(group, member).
template <class S, class HeadOf>
void attention_forward(const HeadOf& head_of, i64 begin, i64 end, char* scratch) {
  constexpr i64 kTiles = kQueriesPacked<S> / S::kTileQueries;
  const ForwardMemory<S> memory(scratch);
  i64 packed = -1;
  for (i64 number = begin; number < end; ++number) {
    const i64 group = number / kTiles / S::kHeads;
    const auto head = head_of(group, number / kTiles % S::kHeads);
    if (group != packed) pack_group<S>(memory, head);
    packed = group;
    forward_tile<S>(memory, head, number % kTiles * S::kTileQueries);
  }
}

}  // namespace mr
