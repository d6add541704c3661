// An attention by the tensor cores, and its gradients; cuda_matrices.h stands before it. `S` has the sizes that the
// generator writes: extents, elements between rows (kQ and its like), the way's numbers, types.
//
// Every kernel is the same figure. A warp has kTiles times 16 rows of the scores and keeps their operand as fragments;
// a block goes over panels of the columns, which all its warps read. Scores of a panel come out of the tensor cores as
// pieces of a result, which are just the pieces of a left operand for the next product: they never leave the
// registers. Nothing is exchanged between warps but the panels, and sums have one order: the same bits every time.
// - attend: rows are queries. The softmax goes along: what was summed is scaled down when a larger score comes.
// - attend_dq: rows are queries. Leaves for every query what the third needs of it: the logarithm of its sum, to the
//   base of two, and Σ o·d_o.
// - attend_dk_dv: rows are keys, columns queries.
// With rows of queries, the columns are mixed: of 32 keys, thread 4g + t has the neighbours from 8t on, which are one
// block of random numbers. For that, key 8a + 2b + c lies in row 8b + 2a + c of the panel.
//
// A negative scale is that of the negated rows; then a hidden score is -inf, whatever it is multiplied with.
#pragma once

namespace mr {

// --- Who a thread is ---

MR_DEVICE int lane_number() { return thread_number() % 32; }
MR_DEVICE int warp_number() { return thread_number() / 32; }
MR_DEVICE int row_number() { return lane_number() / 4; }         // in a tile, and the same plus 8
MR_DEVICE int column_number() { return lane_number() % 4 * 2; }  // in a tile of 8, and the next

template <class S>
MR_DEVICE int first_row(int block) {
  return (block * S::kWarps + warp_number()) * S::kTiles * 16;
}

// --- The scale ---

constexpr double kLogarithm = 1.44269504088896340736;  // of e, to the base of two

// Of scores, in powers of two. Not zero, for that of a hidden score's sake.
MR_DEVICE float factor_of(double scale) {
  const float factor = static_cast<float>(scale < 0 ? -scale * kLogarithm : scale * kLogarithm);
  return factor < 1.17549435e-38f ? 1.17549435e-38f : factor;
}

template <int kTiles, int kSteps>
MR_DEVICE void negate_rows(u32 (&rows)[kTiles][kSteps][4], double scale) {
  const u32 signs = scale < 0 ? 0x80008000u : 0;
  MR_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    MR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      MR_UNROLL
      for (int n = 0; n < 4; ++n) rows[tile][step][n] ^= signs;
    }
  }
}

// --- Panels ---

// Bytes from row to row: an odd number of 16, so that rows which are read together are in different banks.
template <int kColumns>
constexpr int kPitch = 2 * kColumns + 16;

// A stage has a panel of the inner index, one of the values', and two floats a row.
template <class S>
constexpr int kFirstPanel = S::kPanel* kPitch<S::kInner>;
template <class S>
constexpr int kBothPanels = kFirstPanel<S> + S::kPanel* kPitch<S::kValues>;
template <class S>
constexpr int kStageBytes = kBothPanels<S> + (S::kBackward ? S::kPanel * 8 : 0);

enum class Columns { in_order, mixed };

template <Columns kColumns>
MR_DEVICE int row_of(int number) {
  if constexpr (kColumns == Columns::in_order) return number;
  return number / 32 * 32 + number % 8 / 2 * 8 + number / 8 % 4 * 2 + number % 2;
}

// Rows from `first` on of a tensor that has `count`; zeros behind them.
template <class S, int kColumns, Columns kOrder>
MR_DEVICE void fetch_panel(Place to, const typename S::T* from, typename S::I pitch, int first, int count) {
  using I = typename S::I;
  constexpr int kChunks = kColumns / 8;
  constexpr int kThreads = 32 * S::kWarps;
  constexpr int kAll = S::kPanel * kChunks;
  MR_UNROLL
  for (int n = 0; n < kAll; n += kThreads) {
    const int number = n + thread_number();
    if (kAll % kThreads != 0 && number >= kAll) continue;
    const int row = number / kChunks;
    const int chunk = number % kChunks;
    const bool there = first + row < count;
    copy_16(to + row_of<kOrder>(row) * kPitch<kColumns> + chunk * 16,
            from + I(there ? first + row : 0) * pitch + chunk * 8, there);
  }
}

// Calls work(panel, place of its stage) for every panel; fetch(panel, place) was called ahead.
template <class S, class Fetch, class Work>
MR_DEVICE void over_panels(int first, int end, const Fetch& fetch, const Work& work) {
  const Place shared = shared_memory();
  if constexpr (S::kStages == 1) {
    MR_NO_UNROLL
    for (int panel = first; panel < end; ++panel) {
      barrier();
      fetch(panel, shared);
      group_copies();
      wait_for_copies<0>();
      barrier();
      work(panel, shared);
    }
  } else {
    MR_UNROLL
    for (int ahead = 0; ahead < S::kStages - 1; ++ahead) {
      if (first + ahead < end) fetch(first + ahead, shared + ahead * kStageBytes<S>);
      group_copies();
    }
    int stage = 0;
    MR_NO_UNROLL
    for (int panel = first; panel < end; ++panel) {
      wait_for_copies<S::kStages - 2>();
      barrier();
      const int ahead = panel + S::kStages - 1;
      const int free = stage == 0 ? S::kStages - 1 : stage - 1;
      if (ahead < end) fetch(ahead, shared + free * kStageBytes<S>);
      group_copies();
      work(panel, shared + stage * kStageBytes<S>);
      stage = stage == S::kStages - 1 ? 0 : stage + 1;
    }
  }
}

// --- Rows and products ---

// A warp's rows from `first` on as left operands; zeros behind `count`.
template <class S, int kColumns>
MR_DEVICE void load_rows(u32 (&to)[S::kTiles][kColumns / 16][4], const typename S::T* from, typename S::I pitch,
                         int first, int count) {
  using I = typename S::I;
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < 4; ++n) {
      const int row = first + tile * 16 + row_number() + n % 2 * 8;
      MR_UNROLL
      for (int step = 0; step < kColumns / 16; ++step) {
        const I at = I(row) * pitch + step * 16 + column_number() + n / 2 * 8;
        to[tile][step][n] = row < count ? *reinterpret_cast<const u32*>(from + at) : 0;
      }
    }
  }
}

template <class S, int kColumns>
MR_DEVICE void store_rows(typename S::T* to, typename S::I pitch, int first, int count,
                          const float (&c)[S::kTiles][kColumns / 8][4], const float (&factors)[S::kTiles][2]) {
  using I = typename S::I;
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + tile * 16 + row_number() + half * 8;
      if (row >= count) continue;
      const float factor = factors[tile][half];
      MR_UNROLL
      for (int n = 0; n < kColumns / 8; ++n) {
        *reinterpret_cast<u32*>(to + I(row) * pitch + n * 8 + column_number()) =
            halves_of<typename S::T>(c[tile][n][2 * half] * factor, c[tile][n][2 * half + 1] * factor);
      }
    }
  }
}

template <int kTiles, int kCount>
MR_DEVICE void clear(float (&c)[kTiles][kCount][4]) {
  MR_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) c[tile][n][e] = 0;
    }
  }
}

// c = rows · panelᵀ, with kBundles times 16 rows of the panel.
template <class S, int kColumns, int kBundles>
MR_DEVICE void multiply_rows(float (&c)[S::kTiles][2 * kBundles][4], const u32 (&rows)[S::kTiles][kColumns / 16][4],
                             Place panel) {
  clear(c);
  const int lane = lane_number();
  const Place own = panel + (lane / 16 * 8 + lane % 8) * kPitch<kColumns> + lane / 8 % 2 * 16;
  MR_UNROLL
  for (int step = 0; step < kColumns / 16; ++step) {
    MR_UNROLL
    for (int bundle = 0; bundle < kBundles; ++bundle) {
      u32 b[4];
      load_matrices(b, own + bundle * 16 * kPitch<kColumns> + step * 32);
      MR_UNROLL
      for (int tile = 0; tile < S::kTiles; ++tile) {
        multiply<typename S::T>(c[tile][2 * bundle], rows[tile][step], b[0], b[1]);
        multiply<typename S::T>(c[tile][2 * bundle + 1], rows[tile][step], b[2], b[3]);
      }
    }
  }
}

// c += scores · panel, with kBundles times 16 columns of the scores, rows of the panel.
template <class S, int kColumns, int kBundles>
MR_DEVICE void multiply_scores(float (&c)[S::kTiles][kColumns / 8][4],
                               const float (&scores)[S::kTiles][2 * kBundles][4], Place panel) {
  using T = typename S::T;
  const int lane = lane_number();
  const Place own = panel + (lane / 8 % 2 * 8 + lane % 8) * kPitch<kColumns> + lane / 16 * 16;
  MR_UNROLL
  for (int bundle = 0; bundle < kBundles; ++bundle) {
    u32 left[S::kTiles][4];
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int n = 0; n < 4; ++n) {
        const float(&of)[4] = scores[tile][2 * bundle + n / 2];
        left[tile][n] = halves_of<T>(of[n % 2 * 2], of[n % 2 * 2 + 1]);
      }
    }
    MR_UNROLL
    for (int pair = 0; pair < kColumns / 16; ++pair) {
      u32 b[4];
      load_matrices_transposed(b, own + bundle * 16 * kPitch<kColumns> + pair * 32);
      MR_UNROLL
      for (int tile = 0; tile < S::kTiles; ++tile) {
        multiply<T>(c[tile][2 * pair], left[tile], b[0], b[1]);
        multiply<T>(c[tile][2 * pair + 1], left[tile], b[2], b[3]);
      }
    }
  }
}

// --- What is hidden and what is dropped ---

// The key of a thread's element in the tile number n of mixed columns, from the panel's first on.
MR_DEVICE int mixed_key(int n, int e) { return n / 4 * 32 + column_number() * 4 + n % 4 * 2 + e % 2; }

template <class S, int kCount>
MR_DEVICE void hide_keys(float (&scores)[S::kTiles][kCount][4], int row, int key) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int own = key + mixed_key(n, e);
        const bool behind = S::kCausal && own > row + tile * 16 + row_number() + e / 2 * 8;
        if (own >= S::kKeys || behind) scores[tile][n][e] = -infinity();
      }
    }
  }
}

// A dropout, and the number of the first of its elements that are the block's.
template <class S>
struct Masks {
  Dropout dropout;
  u64 first;

  MR_DEVICE u64 element(int query, int key) const {
    return first + static_cast<u64>(query) * S::kMaskQuery + static_cast<u64>(key) * S::kMaskKey;
  }
  // Where blocks run along the keys, the number of that of an element: of keys from a multiple of 8 on.
  MR_DEVICE typename S::Block block(int query, int key) const {
    using Block = typename S::Block;
    return static_cast<Block>(first / 8) + static_cast<Block>(query) * static_cast<Block>(S::kMaskQuery / 8) +
           static_cast<Block>(key) / 8;
  }
  MR_DEVICE bool keeps(int query, int key) const {
    float mask[1];
    return draw<1, 1, false>(mask, element(query, key), dropout) != 0;
  }
  MR_DEVICE float scale() const { return static_cast<float>(dropout.scale); }

  // Which of a query's 8 keys from a multiple of 8 on are kept.
  MR_DEVICE void draw_keys(bool (&kept)[8], int query, int key) const {
    if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query, key), dropout, words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = (l % 2 == 0 ? words[l / 2] << 16 : words[l / 2]) >= dropout.threshold;
    } else {
      u32 bits = 0;
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) bits |= keeps(query, key + l) ? 1u << l : 0u;
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = ((bits >> l) & 1) != 0;
    }
  }

  // Of 16 keys and 16 queries those that are kept of a thread's elements, when rows are keys: element e in tile n of 8
  // queries at bit 8n + e % 2, of the second row at 16 more. Each thread draws a block, and all vote on each key of it.
  MR_DEVICE u32 draw_square(int query, int key) const {
    u32 bits = 0;
    if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query + lane_number() % 16, key + lane_number() / 16 * 8), dropout, words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        const u32 all = votes((l % 2 == 0 ? words[l / 2] << 16 : words[l / 2]) >= dropout.threshold);
        bits = row_number() == l ? all : bits;
      }
      return bits >> column_number();
    } else {
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) {
        const bool kept = keeps(query + l / 2 % 2 * 8 + column_number() + l % 2, key + row_number() + l / 4 * 8);
        bits |= kept ? 1u << (l / 4 * 16 + l / 2 % 2 * 8 + l % 2) : 0u;
      }
      return bits;
    }
  }
};

struct NoMasks {
  MR_DEVICE float scale() const { return 1; }
};

// --- Sums along a row: its elements are in the four threads with one row_number ---

template <class Operation>
MR_DEVICE float over_row(float x) {
  x = Operation::of(x, shuffle_xor(x, 1));
  return Operation::of(x, shuffle_xor(x, 2));
}

// --- Forward ---

// The sums of a softmax's exponentials so far, each thread's own, and the largest exponents that they are relative to.
template <class S>
struct RunningSoftmax {
  float largest[S::kTiles][2];
  float sums[S::kTiles][2];

  MR_DEVICE RunningSoftmax() {
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        largest[tile][half] = -infinity();
        sums[tile][half] = 0;
      }
    }
  }

  // Scores become exponentials, relative to the largest so far; what was summed before is made so too.
  template <int kCount>
  MR_DEVICE void take(float (&scores)[S::kTiles][kCount][4], float (&o)[S::kTiles][S::kValues / 8][4], float factor) {
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        float top = scores[tile][0][2 * half];
        MR_UNROLL
        for (int n = 0; n < kCount; ++n)
          top = larger_of(larger_of(top, scores[tile][n][2 * half]), scores[tile][n][2 * half + 1]);
        top = larger_of(largest[tile][half], over_row<Largest>(top) * factor);
        const float shrunk = power_of_two(largest[tile][half] - top);
        largest[tile][half] = top;
        float sum = sums[tile][half] * shrunk;
        MR_UNROLL
        for (int n = 0; n < S::kValues / 8; ++n) {
          o[tile][n][2 * half] *= shrunk;
          o[tile][n][2 * half + 1] *= shrunk;
        }
        MR_UNROLL
        for (int n = 0; n < kCount; ++n) {
          MR_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[tile][n][e] = power_of_two(scores[tile][n][e] * factor - top);
            sum += scores[tile][n][e];
          }
        }
        sums[tile][half] = sum;
      }
    }
  }
};

template <class S, int kCount, class M>
MR_DEVICE void drop_keys(float (&p)[S::kTiles][kCount][4], const M& masks, int row, int key) {
  if constexpr (S::kDropout) {
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int n = 0; n < kCount; n += 4) {
        MR_UNROLL
        for (int half = 0; half < 2; ++half) {
          bool kept[8];
          masks.draw_keys(kept, row + tile * 16 + row_number() + half * 8, key + mixed_key(n, 0));
          MR_UNROLL
          for (int l = 0; l < 8; ++l) {
            float& own = p[tile][n + l / 2][2 * half + l % 2];
            own = kept[l] ? own : 0.0f;
          }
        }
      }
    }
  }
}

// How many panels of keys a block of queries looks at, and whether a warp sees all of one.
template <class S>
MR_DEVICE int panels_of_keys(int block) {
  const int end = (block + 1) * S::kWarps * S::kTiles * 16;
  const int seen = S::kCausal && end < S::kKeys ? end : S::kKeys;
  return (seen + S::kPanel - 1) / S::kPanel;
}
template <class S>
MR_DEVICE bool hides_keys(int row, int key) {
  return key + S::kPanel > S::kKeys || (S::kCausal && key + S::kPanel - 1 > row);
}

template <class S>
MR_DEVICE void fetch_keys(int panel, Place to, const typename S::T* k, const typename S::T* v) {
  fetch_panel<S, S::kInner, Columns::mixed>(to, k, S::kK, panel * S::kPanel, S::kKeys);
  fetch_panel<S, S::kValues, Columns::mixed>(to + kFirstPanel<S>, v, S::kV, panel * S::kPanel, S::kKeys);
}

template <class S, class M>
MR_DEVICE void attend(int block, const typename S::T* q, const typename S::T* k, const typename S::T* v,
                      typename S::T* o, float* log_sums, double scale, const M& masks) {
  static_assert(S::kPanel % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(S::kStages * kStageBytes<S> == S::kShared);
  const int row = first_row<S>(block);
  const float factor = factor_of(scale);
  u32 rows[S::kTiles][S::kInner / 16][4];
  load_rows<S, S::kInner>(rows, q, S::kQ, row, S::kQueries);
  negate_rows(rows, scale);
  RunningSoftmax<S> softmax;
  float sums[S::kTiles][S::kValues / 8][4];
  clear(sums);
  const auto fetch = [&](int panel, Place to) { fetch_keys<S>(panel, to, k, v); };
  const auto work = [&](int panel, Place at) {
    const int key = panel * S::kPanel;
    float scores[S::kTiles][S::kPanel / 8][4];
    multiply_rows<S, S::kInner, S::kPanel / 16>(scores, rows, at);
    if (hides_keys<S>(row, key)) hide_keys<S>(scores, row, key);
    softmax.take(scores, sums, factor);
    drop_keys<S>(scores, masks, row, key);
    multiply_scores<S, S::kValues, S::kPanel / 16>(sums, scores, at + kFirstPanel<S>);
  };
  over_panels<S>(0, panels_of_keys<S>(block), fetch, work);
  float factors[S::kTiles][2];
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = over_row<Sum>(softmax.sums[tile][half]);
      factors[tile][half] = masks.scale() / sum;
      const int own = row + tile * 16 + row_number() + half * 8;
      if (own < S::kQueries && column_number() == 0)
        log_sums[typename S::I(own) * S::kLogSums] =
            softmax.largest[tile][half] * static_cast<float>(1 / kLogarithm) + log_of(sum);
    }
  }
  store_rows<S, S::kValues>(o, S::kO, row, S::kQueries, sums, factors);
}

// --- Backward ---

// Σ x·y of a thread's pieces of rows.
template <class T, int kSteps>
MR_DEVICE float sum_of_products(const u32 (&x)[kSteps][4], const u32 (&y)[kSteps][4], int half) {
  float sum = 0;
  MR_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    MR_UNROLL
    for (int n = half; n < 4; n += 2) {
      sum += widened(T{static_cast<u16>(x[step][n])}) * widened(T{static_cast<u16>(y[step][n])});
      sum += widened(T{static_cast<u16>(x[step][n] >> 16)}) * widened(T{static_cast<u16>(y[step][n] >> 16)});
    }
  }
  return sum;
}

// Of the rows of a warp: the logarithm of the sum, to the base of two, and Σ o·d_o. Left for the other kernel.
template <class S>
struct QueryPairs {
  float logs[S::kTiles][2];
  float sums[S::kTiles][2];

  MR_DEVICE QueryPairs(const u32 (&d_o)[S::kTiles][S::kValues / 16][4], const typename S::T* o, const float* log_sums,
                       float* pairs, int row) {
    using I = typename S::I;
    u32 rows[S::kTiles][S::kValues / 16][4];
    load_rows<S, S::kValues>(rows, o, S::kO, row, S::kQueries);
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int own = row + tile * 16 + row_number() + half * 8;
        const bool there = own < S::kQueries;
        logs[tile][half] = there ? log_sums[I(own) * S::kLogSums] * static_cast<float>(kLogarithm) : 0.0f;
        sums[tile][half] = over_row<Sum>(sum_of_products<typename S::T>(rows[tile], d_o[tile], half));
        if (there && column_number() == 0) {
          pairs[I(own) * 2] = logs[tile][half];
          pairs[I(own) * 2 + 1] = sums[tile][half];
        }
      }
    }
  }
};

// Scores become ds: p · (dp · mask - Σ o·d_o), of 32 mixed keys.
template <class S, class M>
MR_DEVICE void differentiate(float (&scores)[S::kTiles][4][4], const float (&dp)[S::kTiles][4][4],
                             const QueryPairs<S>& queries, float factor, const M& masks, int row, int key) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      bool kept[8];
      if constexpr (S::kDropout)
        masks.draw_keys(kept, row + tile * 16 + row_number() + half * 8, key + mixed_key(0, 0));
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        float& own = scores[tile][l / 2][2 * half + l % 2];
        float of = dp[tile][l / 2][2 * half + l % 2];
        if constexpr (S::kDropout) of = kept[l] ? of : 0.0f;
        own = power_of_two(own * factor - queries.logs[tile][half]) * (of * masks.scale() - queries.sums[tile][half]);
      }
    }
  }
}

template <int kTiles>
MR_DEVICE void set_all(float (&to)[kTiles][2], float x) {
  MR_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) to[tile][0] = to[tile][1] = x;
}

template <class S, class M>
MR_DEVICE void attend_dq(int block, const typename S::T* q, const typename S::T* k, const typename S::T* v,
                         const typename S::T* o, const float* log_sums, const typename S::T* d_o, typename S::T* d_q,
                         float* pairs, double scale, const M& masks) {
  static_assert(S::kPanel % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(S::kStages * kStageBytes<S> == S::kShared);
  const int row = first_row<S>(block);
  const float factor = factor_of(scale);
  u32 rows[S::kTiles][S::kInner / 16][4];
  load_rows<S, S::kInner>(rows, q, S::kQ, row, S::kQueries);
  negate_rows(rows, scale);
  u32 d_rows[S::kTiles][S::kValues / 16][4];
  load_rows<S, S::kValues>(d_rows, d_o, S::kDO, row, S::kQueries);
  const QueryPairs<S> queries(d_rows, o, log_sums, pairs, row);
  float sums[S::kTiles][S::kInner / 8][4];
  clear(sums);
  const auto fetch = [&](int panel, Place to) { fetch_keys<S>(panel, to, k, v); };
  const auto work = [&](int panel, Place at) {
    const bool hides = hides_keys<S>(row, panel * S::kPanel);
    MR_UNROLL
    for (int part = 0; part < S::kPanel; part += 32) {
      const int key = panel * S::kPanel + part;
      const Place keys = at + part * kPitch<S::kInner>;
      float scores[S::kTiles][4][4];
      float dp[S::kTiles][4][4];
      multiply_rows<S, S::kInner, 2>(scores, rows, keys);
      multiply_rows<S, S::kValues, 2>(dp, d_rows, at + kFirstPanel<S> + part * kPitch<S::kValues>);
      if (hides) hide_keys<S>(scores, row, key);
      differentiate<S>(scores, dp, queries, factor, masks, row, key);
      multiply_scores<S, S::kInner, 2>(sums, scores, keys);
    }
  };
  over_panels<S>(0, panels_of_keys<S>(block), fetch, work);
  float factors[S::kTiles][2];
  set_all(factors, static_cast<float>(scale));
  store_rows<S, S::kInner>(d_q, S::kDQ, row, S::kQueries, sums, factors);
}

// Of 16 queries and a warp's keys: scores become p · mask but for its scale, and dp becomes ds.
template <class S, class M>
MR_DEVICE void differentiate_square(float (&scores)[S::kTiles][2][4], float (&dp)[S::kTiles][2][4], Place pairs,
                                    float factor, const M& masks, int row, int query) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    u32 kept = 0;
    if constexpr (S::kDropout) kept = masks.draw_square(query, row + tile * 16);
    MR_UNROLL
    for (int n = 0; n < 2; ++n) {
      float of[4];
      load_floats(of, pairs + (n * 8 + column_number()) * 8);
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        float& p = scores[tile][n][e];
        float& d = dp[tile][n][e];
        p = power_of_two(p * factor - of[e % 2 * 2]);
        const bool dropped = S::kDropout && (kept & (1u << (e / 2 * 16 + n * 8 + e % 2))) == 0;
        d = p * ((dropped ? 0.0f : d) * masks.scale() - of[e % 2 * 2 + 1]);
        p = dropped ? 0.0f : p;
      }
    }
  }
}

template <class S>
MR_DEVICE void hide_queries(float (&scores)[S::kTiles][2][4], int row, int query) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < 2; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (row + tile * 16 + row_number() + e / 2 * 8 > query + n * 8 + column_number() + e % 2)
          scores[tile][n][e] = -infinity();
      }
    }
  }
}

// Queries behind the last are zeros, in all that is read of them: they add nothing.
template <class S>
MR_DEVICE void fetch_queries(int panel, Place to, const typename S::T* q, const typename S::T* d_o,
                             const float* pairs) {
  const int first = panel * S::kPanel;
  fetch_panel<S, S::kInner, Columns::in_order>(to, q, S::kQ, first, S::kQueries);
  fetch_panel<S, S::kValues, Columns::in_order>(to + kFirstPanel<S>, d_o, S::kDO, first, S::kQueries);
  MR_UNROLL
  for (int n = 0; n < S::kPanel; n += 32 * S::kWarps) {
    const int number = n + thread_number();
    const bool there = first + number < S::kQueries;
    if (number < S::kPanel)
      copy_8(to + kBothPanels<S> + number * 8, pairs + typename S::I(there ? first + number : 0) * 2, there);
  }
}

template <class S, class M>
MR_DEVICE void attend_dk_dv(int block, const typename S::T* q, const typename S::T* k, const typename S::T* v,
                            const typename S::T* d_o, typename S::T* d_k, typename S::T* d_v, const float* pairs,
                            double scale, const M& masks) {
  const int row = first_row<S>(block);
  const float factor = factor_of(scale);
  u32 k_rows[S::kTiles][S::kInner / 16][4];
  load_rows<S, S::kInner>(k_rows, k, S::kK, row, S::kKeys);
  negate_rows(k_rows, scale);
  u32 v_rows[S::kTiles][S::kValues / 16][4];
  load_rows<S, S::kValues>(v_rows, v, S::kV, row, S::kKeys);
  float k_sums[S::kTiles][S::kInner / 8][4];
  clear(k_sums);
  float v_sums[S::kTiles][S::kValues / 8][4];
  clear(v_sums);
  const auto fetch = [&](int panel, Place to) { fetch_queries<S>(panel, to, q, d_o, pairs); };
  const auto work = [&](int panel, Place at) {
    MR_UNROLL
    for (int part = 0; part < S::kPanel; part += 16) {
      const int query = panel * S::kPanel + part;
      const Place of_q = at + part * kPitch<S::kInner>;
      const Place of_d_o = at + kFirstPanel<S> + part * kPitch<S::kValues>;
      float scores[S::kTiles][2][4];
      float dp[S::kTiles][2][4];
      multiply_rows<S, S::kInner, 1>(scores, k_rows, of_q);
      multiply_rows<S, S::kValues, 1>(dp, v_rows, of_d_o);
      if (S::kCausal && query < row + S::kTiles * 16 - 1) hide_queries<S>(scores, row, query);
      differentiate_square<S>(scores, dp, at + kBothPanels<S> + part * 8, factor, masks, row, query);
      multiply_scores<S, S::kValues, 1>(v_sums, scores, of_d_o);
      multiply_scores<S, S::kInner, 1>(k_sums, dp, of_q);
    }
  };
  const int seen = S::kCausal ? block * S::kWarps * S::kTiles * 16 / S::kPanel : 0;  // the first panel that looks here
  over_panels<S>(seen, (S::kQueries + S::kPanel - 1) / S::kPanel, fetch, work);
  float factors[S::kTiles][2];
  set_all(factors, static_cast<float>(scale));
  store_rows<S, S::kInner>(d_k, S::kDK, row, S::kKeys, k_sums, factors);
  set_all(factors, masks.scale());
  store_rows<S, S::kValues>(d_v, S::kDV, row, S::kKeys, v_sums, factors);
}

}  // namespace mr
