// Fused attention on the CPU: from a tile of scores to the softmax's input: which scores are visible, their masks, and
// what the generated formulas read. Test: tests/codegen/cpu_attention_test.cpp
//
// The generator writes a struct X with the formulas: logit(score, query, key, lanes), what the softmax takes at `lanes`
// neighbouring keys; and in backward d_score(score, gradient of the logit, query, key, lanes) and d_term(…).
#pragma once

namespace mr {

// The softmax takes the scores themselves.
struct PlainScore {
  MR_INLINE VecF logit(VecF x, i64, i64, i64) const { return x; }
  MR_INLINE VecF d_score(VecF, VecF g, i64, i64, i64) const { return g; }
};

// One head of a tensor that a formula reads: elements between queries, and between keys; 0 without such an axis.
template <class T>
struct ScoreTerm {
  const T* data;
  i64 query;
  i64 key;

  // Loads the elements at `lanes` neighbouring keys; the other lanes become 1.
  MR_INLINE VecF at(i64 query_number, i64 key_number, i64 lanes) const {
    const T* const first = data + query_number * query + key_number * key;
    if (key == 0) return splat<VecF>(float(widen(*first)));
    if (key == 1 && lanes >= kLanes<float>) return load<VecF, Lanes<kLanes<float>>, 1>(first);
    float values[kLanes<float>];
    for (i64 l = 0; l < kLanes<float>; ++l) values[l] = l < lanes ? float(widen(first[l * key])) : 1.0f;
    return from_lanes(values);
  }
};

// Logits below this are raised to it: the logarithm of a row's sum must tell logits apart. -inf stays.
MR_INLINE VecF raised_logit(VecF x) {
  const VecF lowest = splat<VecF>(-131072.0f);
  return select((x < lowest) & (x != splat<VecF>(-infinity())), lowest, x);
}

// The mask of a head's dropout. Without a dropout, nothing is read.
struct AttentionMask {
  const Dropout* dropout;
  u64 first;  // the number of the head's first element
  u8* bits;   // of the head, if they are stored
};

// The keys of a tile that a query sees, relative to the tile's first.
struct SeenKeys {
  i64 begin;
  i64 end;

  MR_INLINE bool sees_all(i64 column) const { return column >= begin && column + kLanes<float> <= end; }
  MR_INLINE Int<float> at(i64 column) const {
    const Int<float> own = positions<VecF>(column);
    return (own < position<VecF>(end)) & (position<VecF>(begin) <= own);
  }
};

// A tile of scores: queries from `query` on, keys from `key` on. `keys`: up to the last one that any of these queries
// sees; the others are not computed.
template <class S>
struct ScoreTile {
  i64 query;
  i64 key;
  i64 queries;
  i64 keys;

  ScoreTile(i64 first_query, i64 first_key)
      : query(first_query),
        key(first_key),
        queries(least(S::kTileQueries, S::kQueries - first_query)),
        keys(greatest(
            0, least(least(S::kTileKeys, S::kKeys - first_key), first_query + queries + S::kLast - first_key))) {}

  // Whether no query sees any of its keys.
  bool is_hidden() const { return keys == 0 || key + keys <= query + S::kFirst; }
  i64 packed_queries() const { return round_up(queries, kRowStep); }
  i64 packed_keys() const { return round_up(keys, kLanes<float>); }
  SeenKeys seen(i64 row) const {
    return {greatest(0, query + row + S::kFirst - key), least(keys, query + row + S::kLast + 1 - key)};
  }
};

// The masks of a row of a tile, drawn or read: of `keys` keys from `key` on.
template <class S>
MR_INLINE void draw_mask(float* to, const AttentionMask& mask, i64 query, i64 key, i64 keys) {
  draw(to, mask.first + u64(query * S::kMaskQuery + key * S::kMaskKey), u64(S::kMaskKey), keys, *mask.dropout);
}
template <class S>
MR_INLINE void read_mask(float* to, const AttentionMask& mask, i64 query, i64 key, i64 keys) {
  if constexpr (S::kMaskBits)
    unpack_bits(to, mask.bits + query * S::kMaskBytes + key / 8, keys, *mask.dropout);
  else
    draw_mask<S>(to, mask, query, key, keys);
}
template <class S>
MR_INLINE void store_mask(const AttentionMask& mask, const float* from, i64 query, i64 key, i64 keys) {
  pack_bits(mask.bits + query * S::kMaskBytes + key / 8, from, keys);
}

// Reduces the lanes of a vector, in halves.
template <class Operation>
MR_INLINE float across(VecF x) {
  typedef float Half __attribute__((vector_size(32)));
  typedef float Quarter __attribute__((vector_size(16)));
  Half halves[2];
  __builtin_memcpy(halves, &x, kBytes);
  const Half half = Operation::of(halves[0], halves[1]);
  Quarter quarters[2];
  __builtin_memcpy(quarters, &half, 32);
  const Quarter quarter = Operation::of(quarters[0], quarters[1]);
  return Operation::of(Operation::of(quarter[0], quarter[2]), Operation::of(quarter[1], quarter[3]));
}
struct Added {
  template <class V>
  static MR_INLINE V of(V a, V b) {
    return a + b;
  }
};
// The larger number; a NaN may be lost.
struct Larger {
  template <class V>
  static MR_INLINE V of(V a, V b) {
    return a > b ? a : b;
  }
};

}  // namespace mr
