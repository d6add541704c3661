// Fused attention: scores that are hidden (causal, or after the last key), and dropout.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// Key of element e of accumulator n, relative to the first key of the tile.
template <class S>
MR_DEVICE int key_of(int n, int e) {
  if constexpr (S::kKeyOrder == RowOrder::in_order) return n * 8 + fragment_column() + e % 2;
  return n / 4 * 32 + fragment_column() * 4 + n % 4 * 2 + e % 2;
}

// Sets scores to -inf where hidden(row in the warp, n, e), for element e of accumulator n.
template <class S, int kCount, class Hidden>
MR_DEVICE void hide(float (&scores)[S::kRowTiles][kCount][4], const Hidden& hidden) {
  MR_UNROLL
  for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (hidden(row_tile * 16 + fragment_row() + e / 2 * 8, n, e)) scores[row_tile][n][e] = -infinity();
      }
    }
  }
}

// Whether a query does not see a key. kCausal: it sees none after query + kLast; kWindow: none before query + kFirst.
template <class S>
MR_DEVICE bool is_outside_window(int query, int key) {
  return (S::kCausal && key > query + S::kLast) || (S::kWindow && key < query + S::kFirst);
}
template <class S>
MR_DEVICE bool is_hidden(int query, int key) {
  return query >= S::kQueries || key >= S::kKeys || is_outside_window<S>(query, key);
}

template <class S, int kCount>
MR_DEVICE void hide_keys(float (&scores)[S::kRowTiles][kCount][4], int row, int key) {
  hide<S>(scores, [&](int warp_row, int n, int e) {
    const int own = key + key_of<S>(n, e);
    return own >= S::kKeys || is_outside_window<S>(row + warp_row, own);
  });
}

// Transposes 4 x 4 words among the four threads of a row: thread t gets word t of each.
MR_DEVICE void exchange_words(u32 (&words)[4]) {
  MR_UNROLL
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool second = (lane_id() & distance) != 0;
    MR_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      u32& low = words[distance == 1 ? 2 * pair : pair];
      u32& high = words[(distance == 1 ? 2 * pair : pair) + distance];
      const u32 got = shuffle_xor_u32(second ? low : high, distance);
      low = second ? got : low;
      high = second ? high : got;
    }
  }
}

// Dropout of a head. kMaskBits: forward stores the mask, one bit for each element in the order of their numbers, and
// backward reads it; otherwise backward regenerates it. kMaskInBlocks: the 8 elements of one Philox block are
// neighbouring keys of one query.
template <class S>
struct DropoutMask {
  Dropout dropout;
  u64 first;  // number of the head's first element
  u8* bits;   // of the whole tensor
  static constexpr bool kReadsBits = S::kMaskBits && S::kBackward;
  static constexpr bool kStoresBits = S::kMaskBits && !S::kBackward;

  MR_DEVICE u64 element(int query, int key) const {
    return first + static_cast<u64>(query) * S::kMaskQuery + static_cast<u64>(key) * S::kMaskKey;
  }
  // Number of the Philox block of 8 keys; only with kMaskInBlocks.
  MR_DEVICE typename S::Block block(int query, int key) const {
    using Block = typename S::Block;
    return static_cast<Block>(first / 8) + static_cast<Block>(query) * static_cast<Block>(S::kMaskQuery / 8) +
           static_cast<Block>(key) / 8;
  }
  MR_DEVICE bool keeps(int query, int key) const {
    float drawn_mask[1];
    return draw<1, 1, false>(drawn_mask, element(query, key), dropout) != 0;
  }
  MR_DEVICE float scale() const { return static_cast<float>(dropout.scale); }

  // Draw number l of a block, in the upper half of a word like the threshold.
  MR_DEVICE static u32 draw_of(const u32 (&words)[4], int l) { return l % 2 == 0 ? words[l / 2] << 16 : words[l / 2]; }
  MR_DEVICE bool keeps_draw(const u32 (&words)[4], int l) const { return draw_of(words, l) >= dropout.threshold; }
  // Bit l: whether draw l is kept.
  MR_DEVICE u32 kept_bits(const u32 (&words)[4]) const {
    u32 kept = 0;
    MR_UNROLL
    for (int l = 7; l >= 0; --l) kept = append_at_least_bit(kept, draw_of(words, l), dropout.threshold);
    return kept;
  }

  // Whether the element exists. Known at compile time if no block and no tile is partial.
  MR_DEVICE static bool has(int query, int key) {
    constexpr int kRows = S::kWarps * S::kRowTiles * 16;
    constexpr bool kExact = S::kQueries % kRows == 0 && S::kKeys % kRows == 0 && S::kQueries % S::kTileColumns == 0 &&
                            S::kKeys % S::kTileColumns == 0;
    return kExact || (query < S::kQueries && key < S::kKeys);
  }

  // With kMaskBits: bits of a thread's elements among 32 keys of a query. Forward draws and stores them, backward reads
  // them; call early to hide the latency.
  MR_DEVICE u32 find_bits(int query, int key) const {
    constexpr bool kInOrder = S::kKeyOrder == RowOrder::in_order;
    u32 word = 0;
    if constexpr (kReadsBits) {
      word = has(query, key) ? *reinterpret_cast<const u32*>(bits + block(query, key)) : 0;
      return word >> (kInOrder ? fragment_column() : 4 * fragment_column());
    } else if constexpr (S::kMaskBits) {
      u32 words[4];
      const int own_key = key + lane_id() % 4 * 8;
      philox(block(query, own_key), dropout, words);
      const u32 byte = kept_bits(words);
      if (has(query, own_key)) bits[block(query, own_key)] = static_cast<u8>(byte);
      if constexpr (!kInOrder) return byte;
      word = byte << 4 * fragment_column();
      word |= shuffle_xor_u32(word, 1);
      word |= shuffle_xor_u32(word, 2);
      return word >> fragment_column();
    }
    return word;
  }

  // Which of a thread's elements among 32 keys of a query (four accumulators) are kept. `mask_bits`: the result of
  // find_bits.
  MR_DEVICE void find_kept(bool (&kept)[8], int query, int key, u32 mask_bits) const {
    if constexpr (S::kMaskBits) {
      constexpr bool kInOrder = S::kKeyOrder == RowOrder::in_order;
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = (mask_bits & 1u << (kInOrder ? l / 2 * 8 + l % 2 : l)) != 0;
    } else if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query, key + lane_id() % 4 * 8), dropout, words);
      if constexpr (S::kKeyOrder == RowOrder::in_order) exchange_words(words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = keeps_draw(words, l);
    } else {
      u32 bits = 0;
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) bits |= keeps(query, key + key_of<S>(l / 2, l % 2)) ? 1u << l : 0u;
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = ((bits >> l) & 1) != 0;
    }
  }

  // When rows are keys: which elements of a 16 x 16 square (16 keys, 16 queries) a thread keeps, at bit square_bit(e)
  // of the word for 8 queries. Backward reads the bits from smem at `stage`; otherwise each thread draws one Philox
  // block, and the warp votes on each of its keys.
  MR_DEVICE void find_square(u32 (&kept)[2], int query, int key, SmemAddress stage, int row_tile) const {
    if constexpr (kReadsBits) {
      const SmemAddress own = stage + fragment_column() * kMaskRowBytes<S> + (warp_id() * S::kRowTiles + row_tile) * 2;
      MR_UNROLL
      for (int n = 0; n < 2; ++n) {
        const u32 first = load_smem_u16(own + n * 8 * kMaskRowBytes<S>);
        kept[n] = (first | load_smem_u16(own + (n * 8 + 1) * kMaskRowBytes<S>) << 16) >> fragment_row();
      }
    } else {
      const u32 square = draw_square_bits(query, key);
      kept[0] = square;
      kept[1] = square >> 8;
    }
  }
  MR_DEVICE static constexpr u32 square_bit(int e) {
    return 1u << (kReadsBits ? e % 2 * 16 + e / 2 * 8 : e % 2 + e / 2 * 16);
  }

  // Element e for queries 8n..8n + 7 at bit 8n + e % 2; 16 bits higher for the second row (e / 2).
  MR_DEVICE u32 draw_square_bits(int query, int key) const {
    u32 kept = 0;
    if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query + lane_id() % 16, key + lane_id() / 16 * 8), dropout, words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        const u32 all = ballot(keeps_draw(words, l));
        kept = fragment_row() == l ? all : kept;
      }
      return kept >> fragment_column();
    } else {
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) {
        const bool one = keeps(query + l / 2 % 2 * 8 + fragment_column() + l % 2, key + fragment_row() + l / 4 * 8);
        kept |= one ? 1u << (l / 4 * 16 + l / 2 % 2 * 8 + l % 2) : 0u;
      }
      return kept;
    }
  }
};

struct NoDropout {
  static constexpr bool kReadsBits = false;
  static constexpr bool kStoresBits = false;
  MR_DEVICE float scale() const { return 1; }
  MR_DEVICE u32 find_bits(int, int) const { return 0; }
  MR_DEVICE void find_square(u32 (&)[2], int, int, SmemAddress, int) const {}
  MR_DEVICE static constexpr u32 square_bit(int) { return 0; }
};

// find_bits for a warp's rows and 32 kSlices keys.
template <class S, int kSlices, class M>
MR_DEVICE void find_mask_bits(u32 (&mask_bits)[kSlices][S::kRowTiles][2], const M& mask, int row, int key) {
  MR_UNROLL
  for (int n = 0; n < kSlices * S::kRowTiles * 2; ++n) {
    const int row_tile = n / 2 % S::kRowTiles;
    const int slice = n / 2 / S::kRowTiles;
    mask_bits[slice][row_tile][n % 2] =
        mask.find_bits(row + row_tile * 16 + fragment_row() + n % 2 * 8, key + slice * 32);
  }
}

template <class S, int kSlices>
MR_DEVICE void copy_mask_bits(u32 (&to)[kSlices][S::kRowTiles][2], const u32 (&from)[kSlices][S::kRowTiles][2]) {
  MR_UNROLL
  for (int n = 0; n < kSlices * S::kRowTiles * 2; ++n)
    to[n / 2 / S::kRowTiles][n / 2 % S::kRowTiles][n % 2] = from[n / 2 / S::kRowTiles][n / 2 % S::kRowTiles][n % 2];
}

// Zeroes dropped elements of 32 keys, from accumulator `first` on. `mask_bits`: of find_mask_bits.
template <class S, int kCount, class M>
MR_DEVICE void apply_dropout(float (&p)[S::kRowTiles][kCount][4], int first, const M& mask,
                             const u32 (&mask_bits)[S::kRowTiles][2], int row, int key) {
  if constexpr (S::kDropout) {
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        bool kept[8];
        mask.find_kept(kept, row + row_tile * 16 + fragment_row() + half * 8, key, mask_bits[row_tile][half]);
        MR_UNROLL
        for (int l = 0; l < 8; ++l) {
          float& own = p[row_tile][first + l / 2][2 * half + l % 2];
          own = kept[l] ? own : 0.0f;
        }
      }
    }
  }
}

}  // namespace mr
