// Fused attention: what becomes of a score between its product and the softmax, and the gradients of that. The
// generator writes the formulas as a struct X; this file has what they read, and how they are applied to a tile.
// Test: tests/codegen/attention_kernel_test.cpp, tests/measure/attention_trial_test.cpp
//
// X has, besides kPlain and kHides: Terms<P>, the elements that the formulas read at 8 scores; load(terms, places);
// logit(score, terms, l, query, key), what the softmax takes at score l of the 8; and in backward
// d_score(score, gradient of the logit, …) and d_term(…). Scores come without their scale.
#pragma once

namespace mr {

// The softmax takes the scores themselves.
struct PlainScore {
  static constexpr bool kPlain = true;
  static constexpr bool kHides = false;
  template <class P>
  struct Terms {};
};

// The 8 scores of a query and keys that a thread has among 32 keys.
template <class S>
struct KeyPlaces {
  static constexpr bool kOneQuery = true;
  static constexpr bool kNeighbours = S::kKeyOrder == RowOrder::permuted;  // 8 keys in a row
  int query;
  int first;  // of the 32 keys

  MR_DEVICE int query_at(int) const { return query; }
  MR_DEVICE int key_at(int l) const { return first + key_of<S>(l / 2, l % 2); }
};

// The 8 scores that a thread has of 16 keys and 16 queries, if rows are keys: l is 4 times the accumulator plus e.
struct SquarePlaces {
  static constexpr bool kOneQuery = false;
  static constexpr bool kNeighbours = false;
  int query;  // the first ones
  int key;

  MR_DEVICE int query_at(int l) const { return query + l / 4 * 8 + fragment_column() + l % 2; }
  MR_DEVICE int key_at(int l) const { return key + fragment_row() + l / 2 % 2 * 8; }
};

// One head of a tensor that a formula reads. kAlign: the alignment of 8 neighbouring keys, in bytes; 0: they are not
// neighbours.
template <class Element, class Index, bool kHasQueries, bool kHasKeys, int kOwnAlign>
struct ScoreTerm {
  using E = Element;
  using I = Index;
  static constexpr bool kAlongQueries = kHasQueries;
  static constexpr bool kAlongKeys = kHasKeys;
  static constexpr int kAlign = kOwnAlign;
  const E* data;
  I query;  // elements from query to query
  I key;

  MR_DEVICE I at(int query_number, int key_number) const {
    return (kAlongQueries ? I(query_number) * query : I(0)) + (kAlongKeys ? I(key_number) * key : I(0));
  }
};

// The elements of a term at 8 scores. Where there is no score, it has the elements of the last query or key.
template <class Term, class P>
struct TermValues {
  static constexpr bool kOne = !Term::kAlongKeys && (P::kOneQuery || !Term::kAlongQueries);
  static constexpr bool kWide = !kOne && P::kNeighbours && Term::kAlign > 0;
  using E = typename Term::E;
  Elements<E, kOne ? 1 : 8, 1, kWide ? Term::kAlign : static_cast<int>(sizeof(E))> values;

  template <class S>
  MR_DEVICE void load(const Term& term, const P& places) {
    const auto query = [&](int l) { return smaller_int(places.query_at(l), S::kQueries - 1); };
    if constexpr (kWide) {
      values.load(term.data, term.at(query(0), smaller_int(places.key_at(0), S::kKeys - 8)));
    } else {
      MR_UNROLL
      for (int l = 0; l < (kOne ? 1 : 8); ++l)
        values.data.elements[l] = term.data[term.at(query(l), smaller_int(places.key_at(l), S::kKeys - 1))];
    }
  }
  MR_DEVICE float get(int l) const { return values.template get<float>(kOne ? 0 : l); }

 private:
  MR_DEVICE static int smaller_int(int a, int b) { return a < b ? a : b; }
};

// Logits below this are raised to it: the logarithm of a row's sum must tell logits apart. -inf stays.
MR_DEVICE float raised_logit(float x) {
  constexpr float kLowest = -131072.0f;
  return x < kLowest && x != -infinity() ? kLowest : x;
}

// Rows are queries: the terms of a warp's rows and 32 kSlices keys.
template <class S, class X, int kSlices>
MR_DEVICE void load_terms(typename X::template Terms<KeyPlaces<S>> (&to)[kSlices][S::kRowTiles][2], const X& score,
                          int row, int key) {
  if constexpr (!X::kPlain) {
    MR_UNROLL
    for (int n = 0; n < kSlices * S::kRowTiles * 2; ++n) {
      const int row_tile = n / 2 % S::kRowTiles;
      const int slice = n / 2 / S::kRowTiles;
      const KeyPlaces<S> places{row + row_tile * 16 + fragment_row() + n % 2 * 8, key + slice * 32};
      score.template load<S>(to[slice][row_tile][n % 2], places);
    }
  }
}

// Rows are queries: replaces scores by logits.
template <class S, class X, int kCount>
MR_DEVICE void find_logits(float (&scores)[S::kRowTiles][kCount][4], const X& score,
                           const typename X::template Terms<KeyPlaces<S>> (&terms)[kCount / 4][S::kRowTiles][2],
                           int row, int key) {
  if constexpr (!X::kPlain) {
    MR_UNROLL
    for (int n = 0; n < kCount / 4 * S::kRowTiles * 2; ++n) {
      const int half = n % 2;
      const int row_tile = n / 2 % S::kRowTiles;
      const int slice = n / 2 / S::kRowTiles;
      const KeyPlaces<S> places{row + row_tile * 16 + fragment_row() + half * 8, key + slice * 32};
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        float& own = scores[row_tile][slice * 4 + l / 2][2 * half + l % 2];
        own = score.logit(own, terms[slice][row_tile][half], l, places.query_at(l), places.key_at(l));
      }
    }
  }
}

// A weight from its logit; 0 if it is hidden.
template <class S>
MR_DEVICE float weight_of(float logit, float lse, bool hides, int query, int key) {
  const float p = exp2_approx(logit * static_cast<float>(kLog2E) - lse);
  return hides && is_hidden<S>(query, key) ? 0.0f : p;
}

}  // namespace mr
