// Fused attention on the CPU: the gradient of a term of the scores, such as a bias, summed over the heads that share
// it. A thread owns some of its queries. Test: tests/codegen/cpu_attention_test.cpp
#pragma once

namespace mr {

template <class S>
struct TermMemory {
  PackedQueries<S> queries;
  PackedKeys<S> keys;
  GradientTile<S> tile;
  float* sums;  // [kTileQueries][kTileKeys]
  i64 bytes;

  explicit TermMemory(char* scratch) : TermMemory(scratch, ScratchFloats{scratch}) {}

 private:
  TermMemory(const char* scratch, ScratchFloats floats)
      : queries(floats, S::kTileQueries),
        keys(floats),
        tile(floats),
        sums(floats.take(S::kTileQueries * S::kTileKeys)),
        bytes(floats.at - scratch) {}
};

template <class S, class Head>
void add_term_gradient(const TermMemory<S>& memory, const Head& head, const ScoreTile<S>& tile) {
  memory.queries.pack(head, tile.query, tile.queries);
  memory.keys.pack(head, tile.key);
  memory.tile.multiply_operands(memory.queries, memory.keys, tile);
  for (i64 row = 0; row < tile.queries; ++row) {
    const SeenKeys seen = tile.seen(row);
    float* const sums = memory.sums + row * S::kTileKeys;
    memory.tile.for_each_vector(memory.queries, head, tile, row, [&](i64 c, VecF x, VecF, VecF g) {
      VecF d_term = head.score.d_term(x, g, tile.query + row, tile.key + c, tile.keys - c);
      if (!seen.sees_all(c)) d_term = select(seen.at(c), d_term, splat<VecF>(0));
      to_lanes(sums + c, from_lanes(sums + c) + d_term);
    });
  }
}

// Tiles of queries from number `begin` to `end`, counted through the elements of the term's own batch; `heads` share
// one. head_of(element, member); term_of(element) is the gradient.
template <class S, class HeadOf, class TermOf>
void attention_backward_term(const HeadOf& head_of, const TermOf& term_of, i64 heads, i64 begin, i64 end,
                             char* scratch) {
  constexpr i64 kTiles = kQueriesPacked<S> / S::kTileQueries;
  const TermMemory<S> memory(scratch);
  for (i64 number = begin; number < end; ++number) {
    const i64 element = number / kTiles;
    for (i64 key = 0; key < S::kKeys; key += S::kTileKeys) {
      const ScoreTile<S> tile(number % kTiles * S::kTileQueries, key);
      clear(memory.sums, S::kTileQueries * S::kTileKeys);
      for (i64 member = 0; member < heads && !tile.is_hidden(); ++member)
        add_term_gradient<S>(memory, head_of(element, member), tile);
      auto to = term_of(element);
      to.data = to.at(0, key);
      store_rows(to, tile.query, tile.queries, least(S::kTileKeys, S::kKeys - key), memory.sums, S::kTileKeys);
    }
  }
}

}  // namespace mr
