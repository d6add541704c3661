// Fused attention: rows of an operand that are not in memory, such as those of a rotary embedding. They are computed
// on their way to smem, and gradients on their way to memory.
// Test: tests/measure/attention_rows_trial_test.cpp
//
// The generator writes a struct for each such operand, in place of its Matrix. It has a list of Vectors: the columns
// that a thread computes at a time. A vector of a row has a number below kCount. load(rows, row, number) reads its
// sources. finish(rows, place, row, own, number, there) computes it: from the gradients in `place` if it is stored to
// memory; otherwise into `place`, where the row has the number `own`. There are zeros where the operand has no row.
#pragma once

namespace mr {

// One head of a tensor that rows are computed from. `row`: elements from row to row, 0 if all rows have the same.
template <class Element, class Index>
struct RowTerm {
  const Element* data;
  Index row;
};

// kCount elements of a tensor: neighbours if kAlign > 0, which is the alignment of the first one in bytes; otherwise
// `step` apart.
template <class E, int kCount, int kAlign>
struct RowElements {
  Elements<E, kCount, 1, kAlign == 0 ? static_cast<int>(sizeof(E)) : kAlign> values;

  template <class I>
  MR_DEVICE void load(const E* from, I at, I step) {
    if constexpr (kAlign > 0) {
      values.load(from, at);
    } else {
      MR_UNROLL
      for (int l = 0; l < kCount; ++l) values.data.elements[l] = from[at + I(l) * step];
    }
  }
  MR_DEVICE float get(int l) const { return values.template get<float>(l); }
};

// The rows [first, first + kRows) of an operand with `count` rows, for kThreads threads.
template <int kRows, int kThreads>
struct SharedRows {
  int first;
  int count;
  int thread;

  // Does all vectors of one kind. kRowsFirst: neighbouring threads have neighbouring rows, not neighbouring columns.
  // Sources of two vectors are loaded together.
  template <class Vector, bool kRowsFirst, class Rows, class Place>
  MR_DEVICE void do_all(const Rows& rows, const Place& place) const {
    constexpr int kVectors = kRows * Vector::kCount;
    constexpr int kPasses = (kVectors + kThreads - 1) / kThreads;
    constexpr int kTogether = kPasses < 2 ? 1 : 2;
    MR_NO_UNROLL
    for (int pass = 0; pass < kPasses; pass += kTogether) {
      Vector vectors[kTogether];
      MR_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        const int number = (pass + n) * kThreads + thread;
        const int row = first + own_row<Vector, kRowsFirst>(number);
        if (number < kVectors && row < count) vectors[n].load(rows, row, own_number<Vector, kRowsFirst>(number));
      }
      MR_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        const int number = (pass + n) * kThreads + thread;
        const int own = own_row<Vector, kRowsFirst>(number);
        if (number < kVectors)
          vectors[n].finish(rows, place, first + own, own, own_number<Vector, kRowsFirst>(number), first + own < count);
      }
    }
  }

 private:
  template <class Vector, bool kRowsFirst>
  MR_DEVICE static int own_row(int number) {
    return kRowsFirst ? number % kRows : number / Vector::kCount;
  }
  template <class Vector, bool kRowsFirst>
  MR_DEVICE static int own_number(int number) {
    return kRowsFirst ? number / kRows : number % Vector::kCount;
  }
};

// Rounds kCount halves and stores them in smem, kAlign bytes at a time.
template <class T, int kAlign>
MR_DEVICE void store_smem_halves(SmemAddress to, const float* from) {
  if constexpr (kAlign == 16) {
    u32 words[4];
    MR_UNROLL
    for (int n = 0; n < 4; ++n) words[n] = pack_halves<T>(from[2 * n], from[2 * n + 1]);
    store_smem_u32x4(to, words);
  } else {
    MR_UNROLL
    for (int n = 0; n < kAlign / 4; ++n) store_smem_u32(to + n * 4, pack_halves<T>(from[2 * n], from[2 * n + 1]));
  }
}

// Where computed rows go: to a row-major tile.
template <class S, class Tile, RowOrder kRowOrder>
struct RowsInTile {
  SmemAddress tile;

  template <int kAlign, int kCount>
  MR_DEVICE void store(int own, int column, const float (&x)[kCount]) const {
    MR_UNROLL
    for (int n = 0; n < kCount; n += kAlign / 2)
      store_smem_halves<typename S::T, kAlign>(
          tile_address<S>(tile, Tile::offset(permuted_row<kRowOrder>(own), column + n), 0), x + n);
  }
};

// Zeros the columns after the last one.
template <class S, int kColumns, int kPadded, int kRows, class Place>
MR_DEVICE void clear_padding(const Place& place, int thread, int threads) {
  if constexpr (kColumns < kPadded) {
    static_assert(kPadded - kColumns == 8);
    const float zeros[8] = {};
    for (int own = thread; own < kRows; own += threads) place.template store<16>(own, kColumns, zeros);
  }
}

// fetch_tile for computed rows: their sources come from memory.
template <class S, int kRows, int kColumns, RowOrder kRowOrder, class M>
MR_DEVICE void compute_tile(SmemAddress to, const M& from, int first, int count) {
  const RowsInTile<S, SmemTile<S, kRows, kColumns, Order::row_major>, kRowOrder> place{to};
  const SharedRows<kRows, kCopyThreads<S>> shared{first, count, copy_thread<S>()};
  from.compute(shared, place);
  clear_padding<S, M::kColumns, kColumns, kRows>(place, copy_thread<S>(), kCopyThreads<S>);
}

// A warp's computed rows: 8 at a time, in its scratch.
template <class S, int kColumns, class M>
struct PrefetchedRows<S, kColumns, M, true> {
  static constexpr int kPitchBytes = kPaddedPitch<kColumns>;
  static_assert(8 * kPitchBytes <= WarpScratch<S>::kBytes);
  M from;
  int first;
  int count;

  MR_DEVICE void load(const M& rows, int first_row, int end) {
    from = rows;
    first = first_row;
    count = end;
  }
  MR_DEVICE void to_fragments(u32 (&to)[S::kRowTiles][kColumns / 16][4]) const {
    const SmemAddress scratch = WarpScratch<S>(last_stage<S>()).base;
    MR_UNROLL
    for (int n = 0; n < S::kRowTiles * 2; ++n) {
      warp_barrier();
      compute(scratch, first + n * 8);
      warp_barrier();
      MR_UNROLL
      for (int step = 0; step < kColumns / 16; ++step) {
        u32 words[4];
        ldmatrix_x4(words, scratch + lane_id() % 8 * kPitchBytes + step * 32 + lane_id() / 16 * 16);
        to[n / 2][step][n % 2] = words[0];
        to[n / 2][step][2 + n % 2] = words[2];
      }
    }
  }

 private:
  // One row of a tile without swizzling.
  struct Place {
    SmemAddress base;

    template <int kAlign, int kCount>
    MR_DEVICE void store(int own, int column, const float (&x)[kCount]) const {
      MR_UNROLL
      for (int n = 0; n < kCount; n += kAlign / 2)
        store_smem_halves<typename S::T, kAlign>(base + own * kPitchBytes + (column + n) * 2, x + n);
    }
  };

  MR_DEVICE void compute(SmemAddress scratch, int row) const {
    const Place place{scratch};
    from.compute(SharedRows<8, 32>{row, count, lane_id()}, place);
    clear_padding<S, M::kColumns, kColumns, 8>(place, lane_id(), 32);
  }
};

// A warp's gradients of 8 rows as floats in smem. The pitch lets 4 rows of a fragment go to different banks.
template <int kColumns>
struct GradientLines {
  static constexpr int kPitchBytes = 4 * kColumns + 32;
  static constexpr int kBytes = 8 * kPitchBytes;
  SmemAddress base;

  MR_DEVICE void put(int column, float x, float y) const {
    store_smem_f32x2(base + fragment_row() * kPitchBytes + (column + fragment_column()) * 4, x, y);
  }
  MR_DEVICE float at(int own, int column) const { return load_smem_f32(base + own * kPitchBytes + column * 4); }
  // Neighbours from `column` on, whose number is a multiple of kAlign / 4.
  template <int kAlign, int kCount>
  MR_DEVICE void load(float (&to)[kCount], int own, int column) const {
    MR_UNROLL
    for (int n = 0; n < kCount; n += kAlign / 4) {
      if constexpr (kAlign == 16) {
        float four[4];
        load_smem_f32x4(four, base + own * kPitchBytes + (column + n) * 4);
        MR_UNROLL
        for (int k = 0; k < 4; ++k) to[n + k] = four[k];
      } else {
        MR_UNROLL
        for (int k = 0; k < kAlign / 4; ++k) to[n + k] = at(own, column + n + k);
      }
    }
  }
};

// Stores kCount results of a row, from `column` on. kAlign: the alignment of the first one in memory, in bytes.
template <int kAlign, int kCount, class M>
MR_DEVICE void store_row(const M& to, int row, int column, const float (&x)[kCount]) {
  if constexpr (M::kOrder == Order::row_major) {
    mr::store<kCount, 1, kAlign>(to.at(row, column), typename M::I(0), x);
  } else {
    MR_UNROLL
    for (int l = 0; l < kCount; ++l) narrow(x[l], *to.at(row, column + l));
  }
}

// The end of a kernel stores the gradients of q or k, after a barrier that follows the last tile: accumulators times a
// factor, or what is computed from them.
template <class S, int kColumns, class M>
MR_DEVICE void store_gradient(const M& to, int first, int count, const float (&c)[S::kRowTiles][kColumns / 8][4],
                              const float (&factors)[S::kRowTiles][2]) {
  if constexpr (!M::kComputed) {
    store_rows<S, kColumns>(WarpScratch<S>(last_stage<S>()), to, first, count, c, factors);
  } else {
    using Lines = GradientLines<kColumns>;
    constexpr int kWarpBytes = S::kStages * kStageBytes<S> / S::kWarps / 16 * 16;
    static_assert(Lines::kBytes <= kWarpBytes);
    const Lines lines{smem_base() + warp_id() * kWarpBytes};
    MR_UNROLL
    for (int n = 0; n < S::kRowTiles * 2; ++n) {
      const float factor = factors[n / 2][n % 2];
      warp_barrier();
      MR_UNROLL
      for (int k = 0; k < kColumns / 8; ++k)
        lines.put(k * 8, c[n / 2][k][n % 2 * 2] * factor, c[n / 2][k][n % 2 * 2 + 1] * factor);
      warp_barrier();
      to.compute(SharedRows<8, 32>{first + n * 8, count, lane_id()}, lines);
    }
    barrier();  // other results use the same memory, divided among the warps in another way
  }
}

}  // namespace mr
