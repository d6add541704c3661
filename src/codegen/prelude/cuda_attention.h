// An attention by the tensor cores, and its gradients; cuda_matrices.h stands before it. `S` has the sizes that the
// generator writes: extents, the way's numbers, types. Strides are numbers that a launch is given: kernels take long to
// compile, and one is for all layouts in which the same neighbours lie together.
//
// Every kernel is the same figure. A warp has kTiles times 16 rows of the scores and keeps their operand as fragments;
// a block goes over panels of the columns, which all its warps read. Scores of a panel come out of the tensor cores as
// pieces of a result, which are just the pieces of a left operand for the next product: they never leave the
// registers. Nothing is exchanged between warps but the panels, and sums have one order: the same bits every time.
// - attend: rows are queries. The softmax goes along: what was summed is scaled down when a larger score comes.
// - attend_dq: rows are queries. Leaves for every query what the third needs of it: the logarithm of its sum, to the
//   base of two, and Σ o·d_o.
// - attend_dk_dv: rows are keys, columns queries.
// - attend_back: the two in one, where a block's rows are all keys: what it has of a panel of queries is whole, goes
//   through shared memory, and times the keys is d_q.
// With rows of queries, the columns are mixed where a key's numbers lie together: of 32 keys, thread 4g + t has the
// neighbours from 8t on, which are one block of random numbers. For that, key 8a + 2b + c lies in row 8b + 2a + c of
// the panel. Where keys lie together they stay in order, and the four threads of a row exchange what they draw.
//
// A negative scale is that of the negated rows; then a hidden score is -inf, whatever it is multiplied with.
#pragma once

namespace mr {

// --- Who a thread is ---

MR_DEVICE int own_number() { return not_negative(thread_number()); }
MR_DEVICE int lane_number() { return own_number() % 32; }
MR_DEVICE int warp_number() { return own_number() / 32; }
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

// --- Operands ---

// A whole number that a launch is given among its doubles, 2^52 more than it is: its bits are the last ones. To convert
// one takes long, and each thread would convert many.
MR_DEVICE long long whole_number(double x) { return bits_of(x) & ((1LL << 52) - 1); }

// Which neighbours lie together: those of a row, or those of a column.
enum class Lies { by_rows, by_columns };

// What a head has of an operand. `pitch`: elements from row to row, or from column to column.
template <class E, class I, Lies kOwn>
struct Matrix {
  static constexpr Lies kLies = kOwn;
  E* first;
  I pitch;

  MR_DEVICE E* at(int row, int column) const { return further(first, row, column); }
  // From an element on.
  MR_DEVICE E* further(E* from, int rows, int columns) const {
    if constexpr (kLies == Lies::by_rows) return from + I(rows) * pitch + columns;
    return from + I(columns) * pitch + rows;
  }
};

// --- Panels ---

// Bytes from line to line: an odd number of 16, so that lines which are read together are in different banks.
template <int kLength>
constexpr int kPitch = 2 * kLength + 16;

// Some rows of an operand in shared memory, as they lie in memory.
template <class S, int kColumns, Lies kOwn>
struct Panel {
  static constexpr Lies kLies = kOwn;
  static constexpr int kLines = kLies == Lies::by_rows ? S::kPanel : kColumns;
  static constexpr int kLength = kLies == Lies::by_rows ? kColumns : S::kPanel;
  Place place;

  // From the panel's place on, of a number in a line; for groups' products, before it is spread.
  MR_DEVICE static constexpr int offset(int line, int number) {
    if constexpr (S::kGroups) return (number / 64 * kLines + line) * static_cast<int>(kLineBytes) + number % 64 * 2;
    return line * kPitch<kLength> + number * 2;
  }
  // Of an element from the panel's place on; and from that of one that is further on by no more than its line.
  MR_DEVICE static constexpr int distance(int row, int column) {
    return kLies == Lies::by_rows ? offset(row, column) : offset(column, row);
  }
  MR_DEVICE Place at(int row, int column) const { return place + distance(row, column); }
};

// A stage has a panel of the inner index, one of the values', and two floats a row.
template <class S, int kColumns>
constexpr int kPanelBytes = 2 * S::kPanel* kColumns +
                            (S::kGroups ? 0 : 16 * (S::kPanel < kColumns ? kColumns : S::kPanel));
template <class S>
constexpr int kFirstPanel = kPanelBytes<S, S::kInner>;
template <class S>
constexpr int kBothPanels = kFirstPanel<S> + kPanelBytes<S, S::kValues>;
template <class S>
constexpr int kPairs = kBothPanels<S>;  // of a stage's rows; where there is a block a head, those of all are elsewhere
template <class S>
constexpr int kBits = kPairs<S> +
                      (S::kWhole ? 0 : S::kPanel * 8);  // of them and of the block's own rows, with a dropout
template <class S>
constexpr int kBitsBytes = S::kWarps* S::kTiles * 2;  // a row
template <class S>
constexpr int kUsedBytes = !S::kBackward ? kBothPanels<S> : kBits<S> + (S::kDropout ? S::kPanel * kBitsBytes<S> : 0);
template <class S>
constexpr int kStageBytes = S::kGroups ? (kUsedBytes<S> + 1023) / 1024 * 1024 : kUsedBytes<S>;

// A panel of as many rows as a block has.
template <class S>
struct BlockRows : S {
  static constexpr int kPanel = S::kWarps * S::kTiles * 16;
};

// All rows are there, of every block and of every panel: nobody has to look.
template <class S>
constexpr bool kRowsAreWhole = S::kQueries % BlockRows<S>::kPanel == 0 && S::kKeys % BlockRows<S>::kPanel == 0 &&
                               S::kQueries % S::kPanel == 0 && S::kKeys % S::kPanel == 0;

// Behind the stages, where rows are in shared memory: the block's, of the inner index, and in backward of the values'.
// Where a block has all keys: these at least, a panel's gradients of the scores, a line a key, and the pairs of all
// queries.
template <class S>
constexpr int kRowsPlace = S::kStages* kStageBytes<S>;
template <class S>
constexpr int kOtherRowsPlace = kRowsPlace<S> + kPanelBytes<BlockRows<S>, S::kInner>;
template <class S>
constexpr int kScoresPlace =
    !S::kSharedRows && !S::kWhole    ? kRowsPlace<S>
    : S::kSharedRows && S::kBackward ? kOtherRowsPlace<S> + kPanelBytes<BlockRows<S>, S::kValues>
                                     : kOtherRowsPlace<S>;
template <class S>
constexpr int kAllPairs = kScoresPlace<S> + (S::kWhole ? kPanelBytes<BlockRows<S>, S::kPanel> : 0);
template <class S>
constexpr int kSharedBytes = kAllPairs<S> + (S::kWhole ? (S::kQueries + S::kPanel - 1) / S::kPanel * S::kPanel * 8 : 0);

enum class Columns { in_order, mixed };

template <Columns kColumns>
MR_DEVICE int row_of(int number) {
  if constexpr (kColumns == Columns::in_order) return number;
  return number / 32 * 32 + number % 8 / 2 * 8 + number / 8 % 4 * 2 + number % 2;
}

// That of an offset in a panel and another one, which have no bit in common.
template <class S>
MR_DEVICE Place place_in(Place panel, int offset, int other) {
  if constexpr (S::kGroups) return panel + (spread(offset) ^ spread(other));
  return panel + offset + other;
}

// Rows from `first` on of an operand that has `count`; zeros behind them, where nothing is read.
template <class S, int kColumns, Columns kOrder, class M>
MR_DEVICE void fetch_panel(Place to, const M& from, int first, int count) {
  using To = Panel<S, kColumns, M::kLies>;
  constexpr bool kByRows = M::kLies == Lies::by_rows;
  static_assert(kByRows || kOrder == Columns::in_order);
  constexpr int kChunks = To::kLength / 8;
  constexpr int kThreads = 32 * S::kWarps;
  constexpr int kAtOnce = kThreads / kChunks;  // lines
  if constexpr (kAtOnce * kChunks == kThreads && (kAtOnce & (kAtOnce - 1)) == 0) {
    // Bits of a line's number that change from one copy to the next are others than those that threads differ in: all
    // places are the first one's and a constant.
    const int line = own_number() / kChunks;
    const int chunk = own_number() % kChunks;
    const int own = To::offset(row_of<kOrder>(line), chunk * 8);
    const int row = first + (kByRows ? line : chunk * 8);
    const auto* own_from = from.at(row, kByRows ? chunk * 8 : line);
    MR_UNROLL
    for (int n = 0; n < To::kLines; n += kAtOnce) {
      if (To::kLines % kAtOnce == 0 || n + line < To::kLines)
        copy_16(place_in<S>(to, own, To::offset(row_of<kOrder>(n), 0)), own_from, row + (kByRows ? n : 0) < count);
      own_from += kAtOnce * from.pitch;
    }
  } else {
    MR_UNROLL
    for (int n = 0; n < To::kLines * kChunks; n += kThreads) {
      const int line = (n + own_number()) / kChunks;
      const int chunk = (n + own_number()) % kChunks;
      const int row = first + (kByRows ? line : chunk * 8);
      if (line < To::kLines)
        copy_16(place_in<S>(to, To::offset(row_of<kOrder>(line), chunk * 8), 0),
                from.at(row, kByRows ? chunk * 8 : line), row < count);
    }
  }
}

// Panels from `first` up to `end`, which come in stages: fetch(panel, place) is called ahead of work(panel, place).
template <class S, class Fetch>
struct Panels {
  int first;
  int end;
  const Fetch& fetch;
  Place shared = shared_memory();

  MR_DEVICE Panels(int of_first, int of_end, const Fetch& of_fetch) : first(of_first), end(of_end), fetch(of_fetch) {
    // The first ones are on their way while a block looks for its rows.
    MR_UNROLL
    for (int ahead = 0; ahead < S::kStages - 1; ++ahead) {
      if (first + ahead < end) fetch(first + ahead, shared + ahead * kStageBytes<S>);
      group_copies();
    }
  }

  template <class Work>
  MR_DEVICE void each(const Work& work) const {
    int stage = 0;
    MR_NO_UNROLL
    for (int panel = first; panel < end; ++panel) {
      if constexpr (S::kStages == 1) {
        barrier();
        fetch(panel, shared);
        group_copies();
        wait_for_copies<0>();
        if constexpr (S::kGroups) show_copies_to_products();
        barrier();
      } else {
        wait_for_copies<S::kStages - 2>();
        if constexpr (S::kGroups) show_copies_to_products();
        barrier();
        const int ahead = panel + S::kStages - 1;
        const int free = stage == 0 ? S::kStages - 1 : stage - 1;
        if (ahead < end) fetch(ahead, shared + free * kStageBytes<S>);
        group_copies();
      }
      work(panel, shared + stage * kStageBytes<S>);
      stage = stage == S::kStages - 1 ? 0 : stage + 1;
    }
  }
};
template <class S, class Fetch>
MR_DEVICE Panels<S, Fetch> panels_of(int first, int end, const Fetch& fetch) {
  return Panels<S, Fetch>(first, end, fetch);
}

// --- Rows and products ---

// Where a thread has two neighbours of 8 rows and 8 columns of an operand: as pieces of matrices are, or where rows lie
// together, transposed.
template <Lies kLies>
MR_DEVICE int own_row() {
  return kLies == Lies::by_rows ? row_number() : column_number();
}
template <Lies kLies>
MR_DEVICE int own_column() {
  return kLies == Lies::by_rows ? column_number() : row_number();
}
template <Lies kLies>
MR_DEVICE u32 as_piece(u32 neighbours) {
  if constexpr (kLies == Lies::by_columns) return transposed(neighbours);
  return neighbours;
}

// --- Rows from memory and back ---

// 16 bytes of memory; zeros where there is nothing.
MR_DEVICE void load_16(u32 (&to)[4], const void* from, bool there) {
  Elements<u32, 4, 1, 16> chunk;
  if (there) chunk.load(static_cast<const u32*>(from), 0);
  MR_UNROLL
  for (int n = 0; n < 4; ++n) to[n] = there ? chunk.data.elements[n] : 0;
}
MR_DEVICE void store_16(void* to, const u32 (&from)[4]) {
  Elements<u32, 4, 1, 16> chunk;
  MR_UNROLL
  for (int n = 0; n < 4; ++n) chunk.data.elements[n] = from[n];
  chunk.store(static_cast<u32*>(to), 0);
}

// A warp's own part of a stage that no panel is in: the last one before the first panel is worked on, and any behind a
// barrier that comes behind the panel.
template <class S>
struct Room {
  static constexpr int kBytes = kStageBytes<S> / S::kWarps / 16 * 16;
  Place place;

  MR_DEVICE explicit Room(Place stage) : place(stage + warp_number() * kBytes) {}
};
template <class S>
MR_DEVICE Place last_stage() {
  return shared_memory() + (S::kStages - 1) * kStageBytes<S>;
}

// A warp's rows in shared memory on their way, as they lie in memory.
template <class S, int kColumns, Lies kLies>
struct Transit {
  static constexpr int kRows = S::kTiles * 16;
  static constexpr int kLines = kLies == Lies::by_rows ? kRows : kColumns;
  static constexpr int kChunks = (kLies == Lies::by_rows ? kColumns : kRows) / 8;  // of a line
  static constexpr int kAtOnce = 32 / kChunks;                                     // lines that a warp moves
  // From line to line; short ones are in different banks anyway, but for two and two.
  static constexpr int kLineBytes = kChunks < 8 ? kChunks * 16 : kPitch<kChunks * 8>;
  static constexpr int kBytes = kLines * kLineBytes;
  // Whether rows can go this way. Else they are moved by words.
  static constexpr bool kFits = (kChunks & (kChunks - 1)) == 0 && kLines % kAtOnce == 0 && kBytes <= Room<S>::kBytes;
  Place place;

  MR_DEVICE Place at(int line, int chunk) const { return place + line * kLineBytes + chunk * 16; }
  // What a thread moves at first, and how much further on it is in the move number n.
  MR_DEVICE static int line() { return lane_number() / kChunks; }
  MR_DEVICE static int chunk() { return lane_number() % kChunks; }
  MR_DEVICE static int row() { return kLies == Lies::by_rows ? line() : chunk() * 8; }
  MR_DEVICE static int column() { return kLies == Lies::by_rows ? chunk() * 8 : line(); }
  MR_DEVICE static constexpr int rows(int n) { return kLies == Lies::by_rows ? n * kAtOnce : 0; }
  MR_DEVICE static constexpr int columns(int n) { return kLies == Lies::by_rows ? 0 : n * kAtOnce; }
  MR_DEVICE Place moved(int n) const { return at(n * kAtOnce + line(), chunk()); }
  // Where the row begins that a thread names of a left operand's four pieces: the second one has the next 8 rows, the
  // third one the next 8 columns.
  MR_DEVICE Place of_pieces(int tile, int step) const {
    const int rows = lane_number() / 8 % 2;
    const int columns = lane_number() / 16;
    if constexpr (kLies == Lies::by_rows) return at(tile * 16 + rows * 8 + lane_number() % 8, step * 2 + columns);
    return at(step * 16 + columns * 8 + lane_number() % 8, tile * 2 + rows);
  }
};

// A warp's rows from `first` on, left operands; zeros behind `count`. Asked for early, and taken as pieces when they
// are wanted.
template <class S, int kColumns, class M>
struct LoadedRows {
  using Config = Transit<S, kColumns, M::kLies>;
  static constexpr int kCount = S::kTiles * (kColumns / 16);
  u32 words[kCount][4];

  MR_DEVICE void load(const M& from, int first, int count) {
    if constexpr (Config::kFits) {
      const int row = first + Config::row();
      const auto* const own = from.at(row, Config::column());
      MR_UNROLL
      for (int n = 0; n < kCount; ++n)
        load_16(words[n], from.further(own, Config::rows(n), Config::columns(n)),
                kRowsAreWhole<S> || row + Config::rows(n) < count);
    } else {
      const int row = first + own_row<M::kLies>();
      const auto* const own = from.at(row, own_column<M::kLies>());
      MR_UNROLL
      for (int n = 0; n < kCount * 4; ++n) {
        const int rows = n / 4 / (kColumns / 16) * 16 + n % 2 * 8;
        const auto* const at = from.further(own, rows, n / 4 % (kColumns / 16) * 16 + n % 4 / 2 * 8);
        words[n / 4][n % 4] = kRowsAreWhole<S> || row + rows < count ? *reinterpret_cast<const u32*>(at) : 0;
      }
    }
  }

  MR_DEVICE void take(u32 (&to)[S::kTiles][kColumns / 16][4]) const {
    if constexpr (Config::kFits) {
      const Config config{Room<S>(last_stage<S>()).place};
      warp_barrier();
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) store_words(config.moved(n), words[n]);
      warp_barrier();
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) {
        const int tile = n / (kColumns / 16);
        const int step = n % (kColumns / 16);
        if constexpr (M::kLies == Lies::by_rows) {
          load_matrices(to[tile][step], config.of_pieces(tile, step));
        } else {
          load_matrices_transposed(to[tile][step], config.of_pieces(tile, step));
        }
      }
    } else {
      MR_UNROLL
      for (int n = 0; n < kCount * 4; ++n)
        to[n / 4 / (kColumns / 16)][n / 4 % (kColumns / 16)][n % 4] = as_piece<M::kLies>(words[n / 4][n % 4]);
    }
  }
};

// A block's rows from row to row, left operands of every panel: each warp's own as pieces; or all in shared memory,
// from `place` on, for products of groups. `fetch` comes before the panels', so that who waits for the first one has
// waited for the rows, and `take` behind it.
template <class S, int kColumns, class M, bool kShared = S::kSharedRows>
struct KeptRows {
  LoadedRows<S, kColumns, M> loaded;
  u32 pieces[S::kTiles][kColumns / 16][4];

  MR_DEVICE void fetch(Place, const M& from, int block, int count) { loaded.load(from, first_row<S>(block), count); }
  MR_DEVICE void take(double scale) {
    loaded.take(pieces);
    const u32 signs = scale < 0 ? 0x80008000u : 0;
    MR_UNROLL
    for (int n = 0; n < S::kTiles * (kColumns / 16) * 4; ++n)
      pieces[n / 4 / (kColumns / 16)][n / 4 % (kColumns / 16)][n % 4] ^= signs;
  }
};
template <class S, int kColumns, class M>
struct KeptRows<S, kColumns, M, true> {
  using Rows = Panel<BlockRows<S>, kColumns, M::kLies>;
  static_assert(S::kGroups);
  Place place;
  SharedOperand of_group;  // the rows of a group of warps

  MR_DEVICE void fetch(Place to, const M& from, int block, int count) {
    place = to;
    of_group = operand_at(Rows{to}.at(S::kWarps == 4 ? 0 : of_warp(warp_number() / 4 * 64), 0));
    fetch_panel<BlockRows<S>, kColumns, Columns::in_order>(to, from, block * BlockRows<S>::kPanel, count);
  }
  MR_DEVICE void take(double scale) {
    if (scale >= 0) return;
    group_copies();
    wait_for_copies<0>();
    barrier();
    MR_NO_UNROLL
    for (int word = own_number(); word < BlockRows<S>::kPanel * kColumns / 2; word += 32 * S::kWarps)
      store_word(place + word * 4, load_word(place + word * 4) ^ 0x80008000u);
  }
  MR_DEVICE SharedOperand left(int column) const { return of_group.behind(Rows::distance(0, column)); }
};

// A warp's rows from `first` on, but for those behind `count`.
template <class S, int kColumns, class M>
MR_DEVICE void store_rows(const Room<S>& room, const M& to, int first, int count,
                          const float (&c)[S::kTiles][kColumns / 8][4], const float (&factors)[S::kTiles][2]) {
  using Config = Transit<S, kColumns, M::kLies>;
  constexpr int kCount = S::kTiles * (kColumns / 16);
  const Config config{room.place};
  const int row = first + own_row<M::kLies>();
  auto* const own = to.at(row, own_column<M::kLies>());
  if constexpr (Config::kFits) warp_barrier();
  MR_UNROLL
  for (int n = 0; n < kCount; ++n) {
    const int tile = n / (kColumns / 16);
    const int step = n % (kColumns / 16);
    u32 pieces[4];
    MR_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float(&of)[4] = c[tile][2 * step + k / 2];
      const float factor = factors[tile][k % 2];
      pieces[k] = halves_of<typename S::T>(of[k % 2 * 2] * factor, of[k % 2 * 2 + 1] * factor);
    }
    if constexpr (!Config::kFits) {
      MR_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int rows = tile * 16 + k % 2 * 8;
        const u32 neighbours = as_piece<M::kLies>(pieces[k]);
        if (kRowsAreWhole<S> || row + rows < count)
          *reinterpret_cast<u32*>(to.further(own, rows, step * 16 + k / 2 * 8)) = neighbours;
      }
    } else if constexpr (M::kLies == Lies::by_rows) {
      store_matrices(config.of_pieces(tile, step), pieces);
    } else {
      store_matrices_transposed(config.of_pieces(tile, step), pieces);
    }
  }
  if constexpr (Config::kFits) {
    warp_barrier();
    const int moved_row = first + Config::row();
    auto* const moved_to = to.at(moved_row, Config::column());
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      u32 words[4];
      load_words(words, config.moved(n));
      if (kRowsAreWhole<S> || moved_row + Config::rows(n) < count)
        store_16(to.further(moved_to, Config::rows(n), Config::columns(n)), words);
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

// A thread's row of four matrices of a panel: of those at 16 lines and 16 along them, the second one next to the first
// along the lines, or across.
template <class P>
MR_DEVICE Place along_lines(const P& panel) {
  const int lane = lane_number();
  return panel.place + (lane / 16 * 8 + lane % 8) * kPitch<P::kLength> + lane / 8 % 2 * 16;
}
template <class P>
MR_DEVICE Place across_lines(const P& panel) {
  const int lane = lane_number();
  return panel.place + lane % 16 * kPitch<P::kLength> + lane / 16 * 16;
}

// Right operands of 16 columns over 16 indices, at a row and a column of a panel: those of the product with the panel's
// transpose, or with the panel.
template <class P>
MR_DEVICE void load_right_transposed(u32 (&b)[4], const P& panel, int row, int column) {
  if constexpr (P::kLies == Lies::by_rows) {
    load_matrices(b, along_lines(panel) + row * kPitch<P::kLength> + column * 2);
  } else {
    load_matrices_transposed(b, across_lines(panel) + column * kPitch<P::kLength> + row * 2);
  }
}
template <class P>
MR_DEVICE void load_right(u32 (&b)[4], const P& panel, int row, int column) {
  if constexpr (P::kLies == Lies::by_rows) {
    load_matrices_transposed(b, across_lines(panel) + row * kPitch<P::kLength> + column * 2);
  } else {
    load_matrices(b, along_lines(panel) + column * kPitch<P::kLength> + row * 2);
  }
}

// What the products below leave, and until then is not to be touched.
template <class S, int kCount>
MR_DEVICE void finish_products(float (&c)[S::kTiles][kCount][4]) {
  if constexpr (S::kGroups) {
    wait_for_products();
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int n = 0; n < kCount; ++n) {
        MR_UNROLL
        for (int e = 0; e < 4; ++e) settle(c[tile][n][e]);
      }
    }
  }
}

// A warp's tiles times 16 columns of the right operand, over 16 indices: the left operands' step.
template <class S, int kCount, int kSteps>
MR_DEVICE void multiply_bundle(float (&c)[S::kTiles][kCount][4], int bundle, const u32 (&left)[S::kTiles][kSteps][4],
                               int step, const u32 (&b)[4]) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    multiply<typename S::T>(c[tile][2 * bundle], left[tile][step], b[0], b[1]);
    multiply<typename S::T>(c[tile][2 * bundle + 1], left[tile][step], b[2], b[3]);
  }
}

// c = rows · panelᵀ, with as many rows of the panel from `row` on as c has columns.
template <class S, int kColumns, int kCount, class R, class P>
MR_DEVICE void multiply_rows(float (&c)[S::kTiles][kCount][4], const KeptRows<S, kColumns, R>& rows, const P& panel,
                             int row) {
  constexpr bool kByLine = P::kLies == Lies::by_columns;
  if constexpr (S::kSharedRows) {
    const SharedOperand right = operand_at(panel.at(row, 0));
    begin_products();
    MR_UNROLL
    for (int step = 0; step < kColumns / 16; ++step)
      multiply_both_shared<typename S::T, 8 * kCount, R::kLies == Lies::by_columns, kByLine, 0>(
          c[0], rows.left(step * 16), right.behind(P::distance(0, step * 16)), step > 0 ? 1 : 0);
    end_products();
  } else if constexpr (S::kGroups) {
    const SharedOperand right = operand_at(panel.at(row, 0));
    begin_products();
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int step = 0; step < kColumns / 16; ++step)
        multiply_shared<typename S::T, 8 * kCount, kByLine, 0>(
            c[tile], rows.pieces[tile][step], right.behind(P::distance(0, step * 16)), step > 0 ? 1 : 0);
    }
    end_products();
  } else {
    clear(c);
    MR_UNROLL
    for (int step = 0; step < kColumns / 16; ++step) {
      MR_UNROLL
      for (int bundle = 0; bundle < kCount / 2; ++bundle) {
        u32 b[4];
        load_right_transposed(b, panel, row + bundle * 16, step * 16);
        multiply_bundle<S>(c, bundle, rows.pieces, step, b);
      }
    }
  }
}

// c += left · panel, with rows of the panel from `row` on, kColumns of its columns from `column` on.
template <class S, int kColumns, int kBundles, class P>
MR_DEVICE void multiply_left(float (&c)[S::kTiles][kColumns / 8][4], const u32 (&left)[S::kTiles][kBundles][4],
                             const P& panel, int row, int column) {
  using T = typename S::T;
  constexpr bool kByRows = P::kLies == Lies::by_rows;
  if constexpr (S::kGroups) {
    constexpr int kAtOnce = kColumns < 64 ? kColumns : 64;
    const SharedOperand right = operand_at(panel.at(row, column));
    begin_products();
    MR_UNROLL
    for (int bundle = 0; bundle < kBundles; ++bundle) {
      MR_UNROLL
      for (int tile = 0; tile < S::kTiles; ++tile) {
        multiply_shared<T, kAtOnce, kByRows, 0>(c[tile], left[tile][bundle], right.behind(P::distance(bundle * 16, 0)),
                                                1);
        if constexpr (kColumns == 128)
          multiply_shared<T, 64, kByRows, 8>(c[tile], left[tile][bundle], right.behind(P::distance(bundle * 16, 64)),
                                             1);
      }
    }
    end_products();
  } else {
    MR_UNROLL
    for (int bundle = 0; bundle < kBundles; ++bundle) {
      MR_UNROLL
      for (int pair = 0; pair < kColumns / 16; ++pair) {
        u32 b[4];
        load_right(b, panel, row + bundle * 16, column + pair * 16);
        multiply_bundle<S>(c, pair, left, bundle, b);
      }
    }
  }
}

// The pieces of a left operand: 16 columns of a warp's scores, from tile `first` on.
template <class T, int kCount>
MR_DEVICE void pack_left(u32 (&to)[4], const float (&scores)[kCount][4], int first) {
  MR_UNROLL
  for (int n = 0; n < 4; ++n) {
    const float(&of)[4] = scores[first + n / 2];
    to[n] = halves_of<T>(of[n % 2 * 2], of[n % 2 * 2 + 1]);
  }
}

// c += scores · panel, with kBundles times 16 columns of the scores from tile `first` on, rows of the panel from `row`
// on.
template <class S, int kColumns, int kBundles, int kCount, class P>
MR_DEVICE void multiply_scores(float (&c)[S::kTiles][kColumns / 8][4], const float (&scores)[S::kTiles][kCount][4],
                               int first, const P& panel, int row) {
  using T = typename S::T;
  u32 left[S::kTiles][kBundles][4];
  MR_UNROLL
  for (int bundle = 0; bundle < kBundles; ++bundle) {
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      pack_left<T>(left[tile][bundle], scores[tile], first + 2 * bundle);
      MR_UNROLL
      for (int n = 0; S::kGroups && n < 4; ++n) settle(left[tile][bundle][n]);
    }
  }
  multiply_left<S, kColumns>(c, left, panel, row, 0);
}

// --- What is hidden and what is dropped ---

// The key of a thread's element in the tile number n, from the panel's first on.
template <class S>
MR_DEVICE int key_of(int n, int e) {
  if constexpr (S::kKeyColumns == Columns::in_order) return n * 8 + column_number() + e % 2;
  return n / 4 * 32 + column_number() * 4 + n % 4 * 2 + e % 2;
}

// Scores become -inf where hidden(row, n, e) says so: of a warp's row, and of element e in the tile number n.
template <class S, int kCount, class Hidden>
MR_DEVICE void hide(float (&scores)[S::kTiles][kCount][4], const Hidden& hidden) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < kCount; ++n) {
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (hidden(tile * 16 + row_number() + e / 2 * 8, n, e)) scores[tile][n][e] = -infinity();
      }
    }
  }
}

template <class S, int kCount>
MR_DEVICE void hide_keys(float (&scores)[S::kTiles][kCount][4], int row, int key) {
  hide<S>(scores, [&](int own_row, int n, int e) {
    const int own = key + key_of<S>(n, e);
    return own >= S::kKeys || (S::kCausal && own > row + own_row);
  });
}

// The four threads of a row have four words each; each gets the words with its own number, of all four.
MR_DEVICE void exchange_words(u32 (&words)[4]) {
  MR_UNROLL
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool second = (lane_number() & distance) != 0;
    MR_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      u32& low = words[distance == 1 ? 2 * pair : pair];
      u32& high = words[(distance == 1 ? 2 * pair : pair) + distance];
      const u32 got = shuffled_word(second ? low : high, distance);
      low = second ? got : low;
      high = second ? high : got;
    }
  }
}

// A dropout, and the number of the first of its elements that are the block's. kMaskBits: forward leaves the masks, a
// bit an element as they are numbered, and backward reads them instead of drawing them again.
template <class S>
struct Masks {
  Dropout dropout;
  u64 first;
  u8* bits;  // of the whole mask
  static constexpr bool kReads = S::kMaskBits && S::kBackward;

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

  // Of the eight neighbours of a block, by their numbers; compared in the upper half of a word, as the threshold is.
  MR_DEVICE static u32 drawn(const u32 (&words)[4], int l) { return l % 2 == 0 ? words[l / 2] << 16 : words[l / 2]; }
  MR_DEVICE bool keeps_drawn(const u32 (&words)[4], int l) const { return drawn(words, l) >= dropout.threshold; }
  // All of them, the first one at the last bit.
  MR_DEVICE u32 kept_of_drawn(const u32 (&words)[4]) const {
    u32 kept = 0;
    MR_UNROLL
    for (int l = 7; l >= 0; --l) kept = with_bit(kept, drawn(words, l), dropout.threshold);
    return kept;
  }

  // Whether there are such elements: where blocks are whole, that is known.
  MR_DEVICE static bool has(int query, int key) {
    constexpr int kRows = S::kWarps * S::kTiles * 16;
    constexpr bool kWhole =
        S::kQueries % kRows == 0 && S::kKeys % kRows == 0 && S::kQueries % S::kPanel == 0 && S::kKeys % S::kPanel == 0;
    return kWhole || (query < S::kQueries && key < S::kKeys);
  }

  // With kMaskBits, those of a thread's elements in a query's 32 keys: drawn and left, or read. To be called early, for
  // that takes time.
  MR_DEVICE u32 bits_of_keys(int query, int key) const {
    constexpr bool kInOrder = S::kKeyColumns == Columns::in_order;
    u32 word = 0;
    if constexpr (kReads) {
      word = has(query, key) ? *reinterpret_cast<const u32*>(bits + block(query, key)) : 0;
      return word >> (kInOrder ? column_number() : 4 * column_number());
    } else if constexpr (S::kMaskBits) {
      u32 words[4];
      const int own_key = key + lane_number() % 4 * 8;
      philox(block(query, own_key), dropout, words);
      const u32 byte = kept_of_drawn(words);
      if (has(query, own_key)) bits[block(query, own_key)] = static_cast<u8>(byte);
      if constexpr (!kInOrder) return byte;
      word = byte << 4 * column_number();
      word |= shuffled_word(word, 1);
      word |= shuffled_word(word, 2);
      return word >> column_number();
    }
    return word;
  }

  // Which are kept of a thread's elements in a query's 32 keys, which are four tiles: those of the first one first.
  // `known`: what bits_of_keys gave.
  MR_DEVICE void draw_keys(bool (&kept)[8], int query, int key, u32 known) const {
    if constexpr (S::kMaskBits) {
      constexpr bool kInOrder = S::kKeyColumns == Columns::in_order;
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = (known & 1u << (kInOrder ? l / 2 * 8 + l % 2 : l)) != 0;
    } else if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query, key + lane_number() % 4 * 8), dropout, words);
      if constexpr (S::kKeyColumns == Columns::in_order) exchange_words(words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = keeps_drawn(words, l);
    } else {
      u32 bits = 0;
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) bits |= keeps(query, key + key_of<S>(l / 2, l % 2)) ? 1u << l : 0u;
      MR_UNROLL
      for (int l = 0; l < 8; ++l) kept[l] = ((bits >> l) & 1) != 0;
    }
  }

  // Of 16 keys and 16 queries those that are kept of a thread's elements, when rows are keys; `square_bit` says where.
  // Each thread draws a block, and all vote on each key of it; or it reads 16 keys of each of its queries.
  // `stage`: where the query's bits are, if they are read.
  MR_DEVICE void draw_square(u32 (&tiles)[2], int query, int key, Place stage, int tile) const {
    if constexpr (kReads) {
      const Place own = stage + column_number() * kBitsBytes<S> + (warp_number() * S::kTiles + tile) * 2;
      MR_UNROLL
      for (int n = 0; n < 2; ++n) {
        const u32 first = load_half(own + n * 8 * kBitsBytes<S>);
        tiles[n] = (first | load_half(own + (n * 8 + 1) * kBitsBytes<S>) << 16) >> row_number();
      }
    } else {
      const u32 kept = draw_square(query, key);
      tiles[0] = kept;
      tiles[1] = kept >> 8;
    }
  }
  // Of a tile's element.
  MR_DEVICE static constexpr u32 square_bit(int e) {
    return 1u << (kReads ? e % 2 * 16 + e / 2 * 8 : e % 2 + e / 2 * 16);
  }

  // Element e in tile n of 8 queries at bit 8n + e % 2, of the second row at 16 more.
  MR_DEVICE u32 draw_square(int query, int key) const {
    u32 kept = 0;
    if constexpr (S::kMaskInBlocks) {
      u32 words[4];
      philox(block(query + lane_number() % 16, key + lane_number() / 16 * 8), dropout, words);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        const u32 all = votes(keeps_drawn(words, l));
        kept = row_number() == l ? all : kept;
      }
      return kept >> column_number();
    } else {
      MR_NO_UNROLL
      for (int l = 0; l < 8; ++l) {
        const bool one = keeps(query + l / 2 % 2 * 8 + column_number() + l % 2, key + row_number() + l / 4 * 8);
        kept |= one ? 1u << (l / 4 * 16 + l / 2 % 2 * 8 + l % 2) : 0u;
      }
      return kept;
    }
  }
};

struct NoMasks {
  static constexpr bool kReads = false;
  MR_DEVICE float scale() const { return 1; }
  MR_DEVICE u32 bits_of_keys(int, int) const { return 0; }
  MR_DEVICE void draw_square(u32 (&)[2], int, int, Place, int) const {}
  MR_DEVICE static constexpr u32 square_bit(int) { return 0; }
};

// --- Sums along a row: its elements are in the four threads with one row_number ---

template <class Operation>
MR_DEVICE float over_row(float x) {
  x = Operation::of(x, shuffle_xor(x, 1));
  return Operation::of(x, shuffle_xor(x, 2));
}

// What products of groups can be had of: a tile a warp; and where rows are pieces, nothing hidden. ptxas 13.0 gives
// away the registers of a left operand that the next panel needs again where a kernel branches between its products,
// where two tiles leave it too few, and where the loop over panels is short: with one stage, or with more stages than
// panels.
template <class S>
constexpr bool kFitsGroups = S::kTiles == 1 &&
                             (S::kSharedRows ||
                              (!S::kCausal && S::kKeys % S::kPanel == 0 && S::kQueries % S::kPanel == 0 &&
                               S::kStages > 1 &&
                               (S::kStages == 2 || S::kStages * S::kPanel <= least_of(S::kKeys, S::kQueries))));

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

// Of a warp's rows and as many times 32 keys.
template <class S, int kPartitions, class M>
MR_DEVICE void find_bits(u32 (&known)[kPartitions][S::kTiles][2], const M& masks, int row, int key) {
  MR_UNROLL
  for (int n = 0; n < kPartitions * S::kTiles * 2; ++n) {
    const int tile = n / 2 % S::kTiles;
    const int partition = n / 2 / S::kTiles;
    known[partition][tile][n % 2] =
        masks.bits_of_keys(row + tile * 16 + row_number() + n % 2 * 8, key + partition * 32);
  }
}

template <class S, int kPartitions>
MR_DEVICE void copy_bits(u32 (&to)[kPartitions][S::kTiles][2], const u32 (&from)[kPartitions][S::kTiles][2]) {
  MR_UNROLL
  for (int n = 0; n < kPartitions * S::kTiles * 2; ++n)
    to[n / 2 / S::kTiles][n / 2 % S::kTiles][n % 2] = from[n / 2 / S::kTiles][n / 2 % S::kTiles][n % 2];
}

// Of 32 keys, whose tiles are those from `first` on. `known`: what find_bits gave.
template <class S, int kCount, class M>
MR_DEVICE void drop_keys(float (&p)[S::kTiles][kCount][4], int first, const M& masks, const u32 (&known)[S::kTiles][2],
                         int row, int key) {
  if constexpr (S::kDropout) {
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        bool kept[8];
        masks.draw_keys(kept, row + tile * 16 + row_number() + half * 8, key, known[tile][half]);
        MR_UNROLL
        for (int l = 0; l < 8; ++l) {
          float& own = p[tile][first + l / 2][2 * half + l % 2];
          own = kept[l] ? own : 0.0f;
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

template <class S, class K, class V>
MR_DEVICE void fetch_keys(int panel, Place to, const K& k, const V& v) {
  fetch_panel<S, S::kInner, S::kKeyColumns>(to, k, panel * S::kPanel, S::kKeys);
  fetch_panel<S, S::kValues, S::kKeyColumns>(to + kFirstPanel<S>, v, panel * S::kPanel, S::kKeys);
}

template <class S, class Q, class K, class V, class O, class L, class M>
MR_DEVICE void attend(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sums, double scale,
                      const M& masks) {
  static_assert(S::kPanel % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSharedBytes<S> == S::kShared && (!S::kGroups || kFitsGroups<S>));
  KeptRows<S, S::kInner, Q> rows;
  rows.fetch(shared_memory() + kRowsPlace<S>, q, block, S::kQueries);
  const auto fetch = [&](int panel, Place to) { fetch_keys<S>(panel, to, k, v); };
  const auto panels = panels_of<S>(0, panels_of_keys<S>(block), fetch);
  const int row = first_row<S>(block);
  const float factor = factor_of(scale);
  rows.take(scale);
  RunningSoftmax<S> softmax;
  float sums[S::kTiles][S::kValues / 8][4];
  clear(sums);
  const auto work = [&](int panel, Place at) {
    const int key = panel * S::kPanel;
    float scores[S::kTiles][S::kPanel / 8][4];
    const Panel<S, S::kInner, K::kLies> keys{at};
    const Panel<S, S::kValues, V::kLies> values{at + kFirstPanel<S>};
    multiply_rows<S, S::kInner>(scores, rows, keys, 0);
    u32 known[S::kPanel / 32][S::kTiles][2];
    find_bits<S>(known, masks, row, key);
    finish_products<S>(scores);
    if (hides_keys<S>(row, key)) hide_keys<S>(scores, row, key);
    softmax.take(scores, sums, factor);
    MR_UNROLL
    for (int partition = 0; partition < S::kPanel; partition += 32) {
      drop_keys<S>(scores, partition / 8, masks, known[partition / 32], row, key + partition);
      multiply_scores<S, S::kValues, 2>(sums, scores, partition / 8, values, partition);
    }
    finish_products<S>(sums);
  };
  panels.each(work);
  barrier();
  float factors[S::kTiles][2];
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = over_row<Sum>(softmax.sums[tile][half]);
      factors[tile][half] = masks.scale() / sum;
      const int own = row + tile * 16 + row_number() + half * 8;
      if ((kRowsAreWhole<S> || own < S::kQueries) && column_number() == 0)
        *log_sums.at(own, 0) = softmax.largest[tile][half] * static_cast<float>(1 / kLogarithm) + log_of(sum);
    }
  }
  store_rows<S, S::kValues>(Room<S>(last_stage<S>()), o, row, S::kQueries, sums, factors);
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

// Of the rows of a warp: the logarithm of the sum, to the base of two, and Σ o·d_o. leave(query, log, sum) is for
// whoever else needs them.
template <class S>
struct QueryPairs {
  float logs[S::kTiles][2];
  float sums[S::kTiles][2];

  template <class O, class L, class Leave>
  MR_DEVICE void find(const u32 (&d_rows)[S::kTiles][S::kValues / 16][4], const LoadedRows<S, S::kValues, O>& o,
                      const L& log_sums, int row, const Leave& leave) {
    u32 rows[S::kTiles][S::kValues / 16][4];
    o.take(rows);
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int own = row + tile * 16 + row_number() + half * 8;
        const bool there = kRowsAreWhole<S> || own < S::kQueries;
        logs[tile][half] = there ? *log_sums.at(own, 0) * static_cast<float>(kLogarithm) : 0.0f;
        sums[tile][half] = over_row<Sum>(sum_of_products<typename S::T>(rows[tile], d_rows[tile], half));
        if (column_number() == 0) leave(own, logs[tile][half], sums[tile][half]);
      }
    }
  }
};

// Scores become ds: p · (dp · mask - Σ o·d_o), of 32 keys, whose tiles are those from `first` on. `known`: what
// find_bits gave.
template <class S, int kCount, class M>
MR_DEVICE void differentiate(float (&scores)[S::kTiles][kCount][4], const float (&dp)[S::kTiles][kCount][4], int first,
                             const QueryPairs<S>& queries, float factor, const M& masks,
                             const u32 (&known)[S::kTiles][2], int row, int key) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int half = 0; half < 2; ++half) {
      bool kept[8];
      if constexpr (S::kDropout)
        masks.draw_keys(kept, row + tile * 16 + row_number() + half * 8, key, known[tile][half]);
      MR_UNROLL
      for (int l = 0; l < 8; ++l) {
        float& own = scores[tile][first + l / 2][2 * half + l % 2];
        float of = dp[tile][first + l / 2][2 * half + l % 2];
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

template <class S, class Q, class K, class V, class O, class L, class DO, class DQ, class M>
MR_DEVICE void attend_dq(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sums, const DO& d_o,
                         const DQ& d_q, float* pairs, double scale, const M& masks) {
  static_assert(S::kPanel % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSharedBytes<S> == S::kShared && (!S::kGroups || kFitsGroups<S>));
  KeptRows<S, S::kInner, Q> rows;
  rows.fetch(shared_memory() + kRowsPlace<S>, q, block, S::kQueries);
  KeptRows<S, S::kValues, DO> d_rows;
  d_rows.fetch(shared_memory() + kOtherRowsPlace<S>, d_o, block, S::kQueries);
  const auto fetch = [&](int panel, Place to) { fetch_keys<S>(panel, to, k, v); };
  const auto panels = panels_of<S>(0, panels_of_keys<S>(block), fetch);
  const int row = first_row<S>(block);
  LoadedRows<S, S::kValues, O> o_rows;
  o_rows.load(o, row, S::kQueries);
  const float factor = factor_of(scale);
  rows.take(scale);
  d_rows.take(1);
  QueryPairs<S> queries;
  const auto leave = [&](int query, float log, float sum) {
    if (!kRowsAreWhole<S> && query >= S::kQueries) return;
    pairs[typename S::I(query) * 2] = log;
    pairs[typename S::I(query) * 2 + 1] = sum;
  };
  if constexpr (S::kSharedRows) {
    LoadedRows<S, S::kValues, DO> loaded;
    loaded.load(d_o, row, S::kQueries);
    u32 pieces[S::kTiles][S::kValues / 16][4];
    loaded.take(pieces);
    queries.find(pieces, o_rows, log_sums, row, leave);
  } else {
    queries.find(d_rows.pieces, o_rows, log_sums, row, leave);
  }
  float sums[S::kTiles][S::kInner / 8][4];
  clear(sums);
  constexpr int kPartition = S::kGroups ? 64 : 32;               // keys
  constexpr bool kAhead = M::kReads && kPartition == S::kPanel;  // masks are read while the panel before is worked on
  u32 ahead[kPartition / 32][S::kTiles][2];
  if constexpr (kAhead) find_bits<S>(ahead, masks, row, 0);
  const auto work = [&](int panel, Place at) {
    const bool hides = hides_keys<S>(row, panel * S::kPanel);
    MR_NO_UNROLL
    for (int partition = 0; partition < S::kPanel; partition += kPartition) {
      const int key = panel * S::kPanel + partition;
      const Panel<S, S::kInner, K::kLies> keys{at};
      const Panel<S, S::kValues, V::kLies> values{at + kFirstPanel<S>};
      float scores[S::kTiles][kPartition / 8][4];
      float dp[S::kTiles][kPartition / 8][4];
      multiply_rows<S, S::kInner>(scores, rows, keys, partition);
      multiply_rows<S, S::kValues>(dp, d_rows, values, partition);
      u32 known[kPartition / 32][S::kTiles][2];
      if constexpr (kAhead) {
        copy_bits<S>(known, ahead);
        find_bits<S>(ahead, masks, row, key + kPartition < S::kKeys ? key + kPartition : key);
      } else {
        find_bits<S>(known, masks, row, key);
      }
      finish_products<S>(scores);
      finish_products<S>(dp);
      if (hides) hide_keys<S>(scores, row, key);
      MR_UNROLL
      for (int some = 0; some < kPartition; some += 32) {
        differentiate<S>(scores, dp, some / 8, queries, factor, masks, known[some / 32], row, key + some);
        multiply_scores<S, S::kInner, 2>(sums, scores, some / 8, keys, partition + some);
      }
      finish_products<S>(sums);
    }
  };
  panels.each(work);
  barrier();
  float factors[S::kTiles][2];
  set_all(factors, static_cast<float>(scale));
  store_rows<S, S::kInner>(Room<S>(last_stage<S>()), d_q, row, S::kQueries, sums, factors);
}

// Of 16 queries, whose tiles are those from `first` on, and a warp's keys: scores become p · mask but for its scale,
// and dp becomes ds. `squares`: what draw_square gave.
template <class S, int kCount, class M>
MR_DEVICE void differentiate_square(float (&scores)[S::kTiles][kCount][4], float (&dp)[S::kTiles][kCount][4], int first,
                                    Place pairs, float factor, const M& masks, const u32 (&squares)[S::kTiles][2]) {
  MR_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    MR_UNROLL
    for (int n = 0; n < 2; ++n) {
      float of[4];
      load_floats(of, pairs + (n * 8 + column_number()) * 8);
      MR_UNROLL
      for (int e = 0; e < 4; ++e) {
        float& p = scores[tile][first + n][e];
        float& d = dp[tile][first + n][e];
        p = power_of_two(p * factor - of[e % 2 * 2]);
        const bool dropped = S::kDropout && (squares[tile][n] & M::square_bit(e)) == 0;
        d = p * ((dropped ? 0.0f : d) * masks.scale() - of[e % 2 * 2 + 1]);
        p = dropped ? 0.0f : p;
      }
    }
  }
}

template <class S, int kCount>
MR_DEVICE void hide_queries(float (&scores)[S::kTiles][kCount][4], int row, int query) {
  hide<S>(scores, [&](int own_row, int n, int e) { return row + own_row > query + n * 8 + column_number() + e % 2; });
}

// Queries behind the last are zeros, in all that is read of them: they add nothing. `row`: the block's first.
template <class S, class Q, class DO, class M>
MR_DEVICE void fetch_queries(int panel, Place to, const Q& q, const DO& d_o, const float* pairs, const M& masks,
                             int row) {
  const int first = panel * S::kPanel;
  fetch_panel<S, S::kInner, Columns::in_order>(to, q, first, S::kQueries);
  fetch_panel<S, S::kValues, Columns::in_order>(to + kFirstPanel<S>, d_o, first, S::kQueries);
  if constexpr (!S::kWhole) {
    MR_UNROLL
    for (int n = 0; n < S::kPanel; n += 32 * S::kWarps) {
      const int number = n + own_number();
      const bool there = first + number < S::kQueries;
      if (number < S::kPanel)
        copy_8(to + kPairs<S> + number * 8, pairs + typename S::I(there ? first + number : 0) * 2, there);
    }
  }
  if constexpr (M::kReads) {
    static_assert(kBitsBytes<S> % 4 == 0);
    constexpr int kWords = S::kPanel * kBitsBytes<S> / 4;
    MR_UNROLL
    for (int n = 0; n < kWords; n += 32 * S::kWarps) {
      const int number = n + own_number();
      const int query = first + number * 4 / kBitsBytes<S>;
      const int key = row + number * 4 % kBitsBytes<S> * 8;
      const bool there = M::has(query, key);
      if (number < kWords)
        copy_4(to + kBits<S> + number * 4, masks.bits + (there ? masks.block(query, key) : 0), there);
    }
  }
}

template <class S, int kCount>
MR_DEVICE void hide_rows_behind(float (&scores)[S::kTiles][kCount][4], int row) {
  hide<S>(scores, [&](int own_row, int, int) { return row + own_row >= S::kKeys; });
}

template <class S, class K, class V>
struct KeyRows {
  KeptRows<S, S::kInner, K> k;
  KeptRows<S, S::kValues, V> v;

  MR_DEVICE KeyRows(const K& of_k, const V& of_v, int block) {
    k.fetch(shared_memory() + kRowsPlace<S>, of_k, block, S::kKeys);
    v.fetch(shared_memory() + kOtherRowsPlace<S>, of_v, block, S::kKeys);
  }
};

// d_k and d_v of a block's rows, over panels of queries. `more`: what else is done with the scores' gradients, first of
// some queries, then of a panel.
template <class S, class Q, class DO, class K, class V, class DK, class DV, class M, class P, class More>
MR_DEVICE void go_over_queries(int block, KeyRows<S, K, V>& rows, const P& panels, const DK& d_k, const DV& d_v,
                               double scale, const M& masks, const More& more) {
  const int row = first_row<S>(block);
  const float factor = factor_of(scale);
  rows.k.take(scale);
  rows.v.take(1);
  float k_sums[S::kTiles][S::kInner / 8][4];
  clear(k_sums);
  float v_sums[S::kTiles][S::kValues / 8][4];
  clear(v_sums);
  const auto work = [&](int panel, Place at) {
    constexpr int kPartition = S::kGroups ? 32 : 16;  // queries
    const Place pairs = S::kWhole ? shared_memory() + kAllPairs<S> + panel * S::kPanel * 8 : at + kPairs<S>;
    MR_NO_UNROLL
    for (int partition = 0; partition < S::kPanel; partition += kPartition) {
      const int query = panel * S::kPanel + partition;
      const Panel<S, S::kInner, Q::kLies> of_q{at};
      const Panel<S, S::kValues, DO::kLies> of_d_o{at + kFirstPanel<S>};
      float scores[S::kTiles][kPartition / 8][4];
      float dp[S::kTiles][kPartition / 8][4];
      u32 squares[kPartition / 16][S::kTiles][2] = {};
      const auto find_squares = [&] {
        MR_UNROLL
        for (int n = 0; n < kPartition / 16 * S::kTiles; ++n)
          masks.draw_square(squares[n / S::kTiles][n % S::kTiles], query + n / S::kTiles * 16, row + n % S::kTiles * 16,
                            at + kBits<S> + (partition + n / S::kTiles * 16) * kBitsBytes<S>, n % S::kTiles);
      };
      if constexpr (M::kReads) find_squares();  // they come while the products begin
      multiply_rows<S, S::kInner>(scores, rows.k, of_q, partition);
      multiply_rows<S, S::kValues>(dp, rows.v, of_d_o, partition);
      if constexpr (!M::kReads) find_squares();
      finish_products<S>(scores);
      finish_products<S>(dp);
      if (S::kCausal && query < row + S::kTiles * 16 - 1) hide_queries<S>(scores, row, query);
      if constexpr (S::kWhole && BlockRows<S>::kPanel > S::kKeys) hide_rows_behind<S>(scores, row);
      MR_UNROLL
      for (int some = 0; some < kPartition; some += 16)
        differentiate_square<S>(scores, dp, some / 8, pairs + (partition + some) * 8, factor, masks,
                                squares[some / 16]);
      multiply_scores<S, S::kValues, kPartition / 16>(v_sums, scores, 0, of_d_o, partition);
      multiply_scores<S, S::kInner, kPartition / 16>(k_sums, dp, 0, of_q, partition);
      more.of_queries(dp, row, partition);
      finish_products<S>(v_sums);
      finish_products<S>(k_sums);
    }
    more.of_panel(panel, at);
  };
  panels.each(work);
  barrier();
  float factors[S::kTiles][2];
  set_all(factors, static_cast<float>(scale));
  store_rows<S, S::kInner>(Room<S>(last_stage<S>()), d_k, row, S::kKeys, k_sums, factors);
  set_all(factors, masks.scale());
  store_rows<S, S::kValues>(Room<S>(last_stage<S>()), d_v, row, S::kKeys, v_sums, factors);
}

struct NothingMore {
  template <class Scores>
  MR_DEVICE void of_queries(const Scores&, int, int) const {}
  MR_DEVICE void of_panel(int, Place) const {}
};

template <class S, class Q, class K, class V, class DO, class DK, class DV, class M>
MR_DEVICE void attend_dk_dv(int block, const Q& q, const K& k, const V& v, const DO& d_o, const DK& d_k, const DV& d_v,
                            const float* pairs, double scale, const M& masks) {
  KeyRows<S, K, V> rows(k, v, block);
  const int first = block * S::kWarps * S::kTiles * 16;
  const auto fetch = [&](int panel, Place to) { fetch_queries<S>(panel, to, q, d_o, pairs, masks, first); };
  const int seen = S::kCausal ? block * S::kWarps * S::kTiles * 16 / S::kPanel : 0;  // the first panel that looks here
  const auto panels = panels_of<S>(seen, (S::kQueries + S::kPanel - 1) / S::kPanel, fetch);
  go_over_queries<S, Q, DO>(block, rows, panels, d_k, d_v, scale, masks, NothingMore());
}

// --- Backward in one, where a block has all keys ---

template <class S>
struct OneTile : S {
  static constexpr int kTiles = 1;
};

// A panel's gradients of the scores: all warps leave theirs, a line a key; then each takes 16 queries of them, and some
// of the keys' columns.
template <class S, class K, class DQ>
struct QueryGradients {
  static constexpr int kQueryTiles = S::kPanel / 16;
  static constexpr int kShares = S::kWarps > kQueryTiles ? S::kWarps / kQueryTiles : 1;  // of columns
  static constexpr int kColumns = S::kInner / kShares;
  static_assert(kColumns * kShares == S::kInner && kColumns % (S::kGroups ? 32 : 16) == 0);
  static_assert(kQueryTiles * kShares % S::kWarps == 0);
  using Scores = Panel<BlockRows<S>, S::kPanel, Lies::by_rows>;
  using Keys = Panel<BlockRows<S>, S::kInner, K::kLies>;
  const DQ& d_q;
  float scale;

  template <int kCount>
  MR_DEVICE void of_queries(const float (&ds)[S::kTiles][kCount][4], int row, int partition) const {
    const int key = row + lane_number() / 8 % 2 * 8 + lane_number() % 8;
    MR_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      const int own = Scores::offset(key + tile * 16, lane_number() / 16 * 8);
      MR_UNROLL
      for (int bundle = 0; bundle < kCount / 2; ++bundle) {
        u32 pieces[4];
        pack_left<typename S::T>(pieces, ds[tile], 2 * bundle);
        store_matrices(place_in<S>(shared_memory() + kScoresPlace<S>, own, Scores::offset(0, partition + bundle * 16)),
                       pieces);
      }
    }
  }

  // `stage`: the panel's, which nobody reads any more when all have left their gradients.
  MR_DEVICE void of_panel(int panel, Place stage) const {
    if constexpr (S::kGroups) show_copies_to_products();  // and what was stored
    barrier();
    MR_UNROLL
    for (int n = 0; n < kQueryTiles * kShares; n += S::kWarps) {
      const int own = n + (S::kGroups ? of_warp(warp_number()) : warp_number());
      const int query = own % kQueryTiles * 16;
      const int column = own / kQueryTiles * kColumns;
      float sums[1][kColumns / 8][4];
      multiply(sums, query, column);
      const float factors[1][2] = {{scale, scale}};
      const DQ columns{d_q.at(0, column), d_q.pitch};
      store_rows<OneTile<S>, kColumns>(Room<OneTile<S>>(stage), columns, panel * S::kPanel + query, S::kQueries, sums,
                                       factors);
    }
  }

  // 16 queries' gradients times the keys' columns. A group's warps have those of a panel, which stay where they are.
  MR_DEVICE static void multiply(float (&sums)[1][kColumns / 8][4], int query, int column) {
    using T = typename S::T;
    constexpr int kSteps = BlockRows<S>::kPanel / 16;
    const Place scores = shared_memory() + kScoresPlace<S>;
    const Keys keys{shared_memory() + kRowsPlace<S>};
    if constexpr (S::kGroups) {
      static_assert(S::kPanel == 64);
      constexpr bool kByRows = K::kLies == Lies::by_rows;
      const SharedOperand left = operand_at(scores);
      const SharedOperand right = operand_at(keys.at(0, column));
      begin_products();
      MR_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        MR_UNROLL
        for (int some = 0; some < kColumns; some += 64) {
          constexpr int kAtOnce = kColumns < 64 ? kColumns : 64;
          const SharedOperand own_left = left.behind(Scores::distance(step * 16, 0));
          const SharedOperand own_right = right.behind(Keys::distance(step * 16, some));
          if (some == 0) {
            multiply_both_shared<T, kAtOnce, true, kByRows, 0>(sums[0], own_left, own_right, step > 0 ? 1 : 0);
          } else if constexpr (kColumns > 64) {
            multiply_both_shared<T, kAtOnce, true, kByRows, 8>(sums[0], own_left, own_right, step > 0 ? 1 : 0);
          }
        }
      }
      end_products();
      finish_products<OneTile<S>>(sums);
    } else {
      clear(sums);
      const int lane = lane_number();
      const int own = Scores::offset(lane / 16 * 8 + lane % 8, query + lane / 8 % 2 * 8);
      MR_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        u32 left[1][1][4];
        load_matrices_transposed(left[0][0], scores + own + Scores::offset(step * 16, 0));
        multiply_left<OneTile<S>, kColumns>(sums, left, keys, step * 16, column);
      }
    }
  }
};

template <class S, class Q, class K, class V, class O, class L, class DO, class DQ, class DK, class DV, class M>
MR_DEVICE void attend_back(int block, const Q& q, const K& k, const V& v, const O& o, const L& log_sums, const DO& d_o,
                           const DQ& d_q, const DK& d_k, const DV& d_v, double scale, const M& masks) {
  static_assert(S::kPanel % 32 == 0 && S::kInner % 16 == 0 && S::kValues % 16 == 0);
  static_assert(kSharedBytes<S> == S::kShared && (!S::kGroups || kFitsGroups<S>));
  static_assert(BlockRows<S>::kPanel >= S::kKeys);
  KeyRows<S, K, V> rows(k, v, block);
  if constexpr (!S::kSharedRows)
    fetch_panel<BlockRows<S>, S::kInner, Columns::in_order>(shared_memory() + kRowsPlace<S>, k, 0, S::kKeys);
  const auto fetch = [&](int panel, Place to) { fetch_queries<S>(panel, to, q, d_o, nullptr, masks, 0); };
  constexpr int kPanels = (S::kQueries + S::kPanel - 1) / S::kPanel;
  const auto panels = panels_of<S>(0, kPanels, fetch);
  MR_NO_UNROLL
  for (int row = first_row<S>(0); row - first_row<S>(0) < kPanels * S::kPanel; row += BlockRows<S>::kPanel) {
    LoadedRows<S, S::kValues, DO> d_loaded;
    d_loaded.load(d_o, row, S::kQueries);
    LoadedRows<S, S::kValues, O> loaded;
    loaded.load(o, row, S::kQueries);
    u32 d_rows[S::kTiles][S::kValues / 16][4];
    d_loaded.take(d_rows);
    QueryPairs<S>().find(d_rows, loaded, log_sums, row, [&](int query, float log, float sum) {
      if (query < kPanels * S::kPanel) store_floats(shared_memory() + kAllPairs<S> + query * 8, log, sum);
    });
  }
  const bool negated = S::kSharedRows && scale < 0;  // the keys, in shared memory
  QueryGradients<S, K, DQ> gradients{d_q, static_cast<float>(negated ? -scale : scale)};
  settle(gradients.scale);
  go_over_queries<S, Q, DO>(block, rows, panels, d_k, d_v, scale, masks, gradients);
}

}  // namespace mr
