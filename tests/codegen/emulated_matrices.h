// The hardware of an attention's kernels, emulated by one thread of a CPU: it takes the place of
// codegen/prelude/cuda_matrices.h, behind emulated_hardware.h. Stricter than a GPU: what is being copied is not there
// before it is waited for, and what was there before is gone when the copy begins; what a warp stores, another one may
// only touch behind a barrier.
#pragma once

#define MR_BLOCKS(count)

namespace mr {

using Place = u32;

constexpr u32 kMostShared = 227 * 1024;  // bytes that a block may ask for
constexpr int kMostCopies = 512;         // of a thread that it has not waited for; every kernel has its own table

struct Copy {
  Place to;
  u32 bytes;
  const void* from;  // null: zeros
  int group;
};

struct CopyingThread {
  Copy copies[kMostCopies];
  int count = 0;
  int groups = 0;
};

struct Given {
  u32 words[6];
};

constexpr int kMostProducts = 32;      // of a thread that it has not waited for
constexpr int kMostMultiplying = 256;  // threads of a block that has such products

// A product of a group that is under way: what is in shared memory is read when it is waited for.
struct GroupProduct {
  float (*c)[4];  // which nobody may touch meanwhile
  int columns;
  bool indices_by_line;
  bool first;          // that has this c
  float before[8][4];  // what was in it then
  u32 left[16][8];     // two halves each
  Place right;
  bool left_shared;  // then not there, but in shared memory
  bool left_by_line;
  Place left_place;
  void (*finish)(const GroupProduct&);
};

struct MultiplyingThread {
  GroupProduct products[kMostProducts];
  int count = 0;
  bool sees_copies = false;  // those that it waited for
  bool has_begun = false;
};

// Who was last at a word of shared memory, and how many barriers before: all of a block's threads count alike.
struct Visit {
  u64 block = 0;  // of those that ran
  u32 barriers = 0;
  int warp = 0;

  bool is_of_another() const;
};
struct Visits {
  Visit written;
  Visit read;
};

struct Matrices {
  alignas(16) unsigned char shared[kMostShared];
  Visits visits[kMostShared / 4];
  CopyingThread threads[kMostThreads];
  MultiplyingThread multiplying[kMostMultiplying];
  Given given[2][kMostThreads];  // to other threads, alternately so that one barrier is enough
  int turns[kMostThreads];
};

inline Matrices& matrices() {
  static Matrices* const one = new Matrices();
  return *one;
}

inline Place shared_memory() { return 0; }

inline unsigned char* shared_bytes(Place at, u32 bytes) {
  if (at % bytes != 0 || at + bytes > machine().shared_bytes || machine().shared_bytes > kMostShared) {
    fprintf(stderr, "no %u bytes at %u of shared memory\n", bytes, at);
    abort();
  }
  return matrices().shared + at;
}

inline Visit own_visit() {
  const int own = thread_number();
  return {machine().ran, machine().barriers[own], own / 32};
}
inline bool Visit::is_of_another() const {
  const Visit own = own_visit();
  return block == own.block && barriers == own.barriers && warp != own.warp;
}
inline void refuse_race(Place at) {
  fprintf(stderr, "two warps are at %u of shared memory, and no barrier between them\n", at);
  abort();
}
// What a thread reads of shared memory, and what it writes there.
inline const unsigned char* read_bytes(Place at, u32 bytes) {
  for (Place word = at / 4; word < (at + bytes + 3) / 4; ++word) {
    Visits& visits = matrices().visits[word];
    if (visits.written.is_of_another()) refuse_race(at);
    visits.read = own_visit();
  }
  return shared_bytes(at, bytes);
}
inline unsigned char* written_bytes(Place at, u32 bytes) {
  for (Place word = at / 4; word < (at + bytes + 3) / 4; ++word) {
    Visits& visits = matrices().visits[word];
    if (visits.written.is_of_another() || visits.read.is_of_another()) refuse_race(at);
    visits.written = own_visit();
  }
  return shared_bytes(at, bytes);
}

inline void copy_bytes(Place to, const void* from, bool there, u32 bytes) {
  if (reinterpret_cast<u64>(from) % bytes != 0) {
    fprintf(stderr, "a copy from an address that is not aligned to %u\n", bytes);
    abort();
  }
  memset(written_bytes(to, bytes), 0xff, bytes);
  CopyingThread& own = matrices().threads[thread_number()];
  if (own.count == kMostCopies) abort();
  own.copies[own.count++] = {to, bytes, there ? from : nullptr, own.groups};
}
inline void copy_16(Place to, const void* from, bool there) { copy_bytes(to, from, there, 16); }
inline void copy_8(Place to, const void* from, bool there) { copy_bytes(to, from, there, 8); }
inline void copy_4(Place to, const void* from, bool there) { copy_bytes(to, from, there, 4); }
inline void group_copies() { ++matrices().threads[thread_number()].groups; }

template <int kGroups>
inline void wait_for_copies() {
  CopyingThread& own = matrices().threads[thread_number()];
  int left = 0;
  for (int k = 0; k < own.count; ++k) {
    const Copy& copy = own.copies[k];
    if (copy.group >= own.groups - kGroups) {
      own.copies[left++] = copy;
    } else if (copy.from == nullptr) {
      memset(shared_bytes(copy.to, copy.bytes), 0, copy.bytes);
    } else {
      memcpy(shared_bytes(copy.to, copy.bytes), copy.from, copy.bytes);
    }
  }
  own.count = left;
  if (thread_number() < kMostMultiplying) matrices().multiplying[thread_number()].sees_copies = false;
}

// What each thread of the block gives, as soon as all have given.
template <int kCount>
inline const Given* exchanged(const u32 (&words)[kCount]) {
  Matrices& all = matrices();
  const int own = thread_number();
  const int turn = all.turns[own]++ % 2;
  memcpy(all.given[turn][own].words, words, sizeof(words));
  wait_for_others();
  return all.given[turn] + thread_number() / 32 * 32;
}

inline u16 shared_half(Place at) {
  u16 half;
  memcpy(&half, shared_bytes(at, 2), 2);
  return half;
}

inline void load_matrices(u32 (&to)[4], Place row, bool transposed) {
  read_bytes(row, 16);
  const u32 place[1] = {row};
  const Given* const rows = exchanged(place);
  const int lane = thread_number() % 32;
  const int first = lane % 4 * 2;
  const int other = lane / 4;
  for (int k = 0; k < 4; ++k) {
    u32 words[2];
    for (int n = 0; n < 2; ++n) {
      const int line = transposed ? first + n : other;
      const int column = transposed ? other : first + n;
      words[n] = shared_half(rows[8 * k + line].words[0] + 2 * column);
    }
    to[k] = words[0] | words[1] << 16;
  }
}
inline void load_matrices(u32 (&to)[4], Place row) { load_matrices(to, row, false); }
inline void load_matrices_transposed(u32 (&to)[4], Place row) { load_matrices(to, row, true); }
inline void store_matrices(Place row, const u32 (&from)[4], bool transposed) {
  written_bytes(row, 16);
  const u32 words[5] = {row, from[0], from[1], from[2], from[3]};
  const Given* const all = exchanged(words);
  const int lane = thread_number() % 32;
  const int first = lane % 4 * 2;
  const int other = lane / 4;
  for (int k = 0; k < 4; ++k) {
    for (int n = 0; n < 2; ++n) {
      const int line = transposed ? first + n : other;
      const int column = transposed ? other : first + n;
      const u16 half = static_cast<u16>(from[k] >> 16 * n);
      memcpy(shared_bytes(all[8 * k + line].words[0] + 2 * column, 2), &half, 2);
    }
  }
}
inline void store_matrices(Place row, const u32 (&from)[4]) { store_matrices(row, from, false); }
inline void store_matrices_transposed(Place row, const u32 (&from)[4]) { store_matrices(row, from, true); }
inline void load_words(u32 (&to)[4], Place from) { memcpy(to, read_bytes(from, 16), 16); }
inline void store_words(Place to, const u32 (&from)[4]) { memcpy(written_bytes(to, 16), from, 16); }
inline void warp_barrier() { wait_for_others(); }
inline void load_floats(float (&to)[4], Place from) { memcpy(to, read_bytes(from, 16), 16); }
inline u32 load_half(Place from) {
  read_bytes(from, 2);
  return shared_half(from);
}
inline u32 load_word(Place from) {
  u32 word;
  memcpy(&word, read_bytes(from, 4), 4);
  return word;
}
inline void store_word(Place to, u32 word) { memcpy(written_bytes(to, 4), &word, 4); }
inline void store_floats(Place to, float first, float second) {
  const float both[2] = {first, second};
  memcpy(written_bytes(to, 8), both, 8);
}

template <class T>
inline float widened_half(u32 word, int number) {
  return widened(T{static_cast<u16>(number == 0 ? word : word >> 16)});
}

template <class T>
inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 words[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const Given* const all = exchanged(words);
  const int lane = thread_number() % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4;
    const int column = lane % 4 * 2 + e % 2;
    float sum = c[e];
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2;
      const float left = widened_half<T>(all[4 * row + pair].words[e / 2 + k / 8 * 2], k % 2);
      const float right = widened_half<T>(all[4 * column + pair].words[4 + k / 8], k % 2);
      sum += left * right;
    }
    c[e] = sum;
  }
}

template <class T>
inline u32 halves_of(float first, float second) {
  T low;
  T high;
  narrow(first, low);
  narrow(second, high);
  return static_cast<u32>(low.bits) | static_cast<u32>(high.bits) << 16;
}

// As inexact as the hardware's.
inline float power_of_two(float x) {
  const float y = __builtin_exp2f(x) * (1 + 0x1p-23f);
  return y < 0x1p-126f ? 0 : y;
}

inline u32 transposed(u32 piece) {
  const u32 own[1] = {piece};
  const Given* const all = exchanged(own);
  const int lane = thread_number() % 32;
  u32 word = 0;
  for (int n = 0; n < 2; ++n) {
    const int row = lane % 4 * 2 + n;
    const int column = lane / 4;
    const u32 from = all[4 * row + column / 2].words[0];
    word |= (column % 2 == 0 ? from & 0xffffu : from >> 16) << (16 * n);
  }
  return word;
}

inline int not_negative(int x) { return x; }

inline u32 shuffled_word(u32 word, int mask) {
  const u32 own[1] = {word};
  const Given* const all = exchanged(own);
  return all[thread_number() % 32 ^ mask].words[0];
}

inline long long bits_of(double x) {
  long long bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline u32 with_bit(u32 bits, u32 x, u32 threshold) { return 2 * bits + (x >= threshold ? 1 : 0); }

inline u32 votes(bool yes) {
  const u32 own[1] = {yes ? 1u : 0u};
  const Given* const all = exchanged(own);
  u32 bits = 0;
  for (int k = 0; k < 32; ++k) bits |= all[k].words[0] << k;
  return bits;
}

// --- Products of groups ---

constexpr Place kLineBytes = 128;
inline Place spread(Place place) { return place ^ (place >> 3 & 0x70); }

// As products take it; where it is.
struct SharedOperand {
  Place place;

  SharedOperand behind(int bytes) const { return {place + static_cast<Place>(bytes)}; }
};
inline SharedOperand operand_at(Place place) { return {place}; }

inline int of_warp(int x) {
  const u32 own[1] = {static_cast<u32>(x)};
  const Given* const all = exchanged(own);
  if (all[0].words[0] != own[0]) {
    fprintf(stderr, "threads of a warp differ\n");
    abort();
  }
  return x;
}

inline MultiplyingThread& multiplying() {
  if (thread_number() >= kMostMultiplying) abort();
  return matrices().multiplying[thread_number()];
}

inline void show_copies_to_products() { multiplying().sees_copies = true; }
inline void begin_products() { multiplying().has_begun = true; }
inline void end_products() { multiplying().has_begun = false; }

// The right operand's number for a column and an index: lines are of columns, or of indices.
template <class T>
inline float right_number(const GroupProduct& of, int column, int index) {
  const int line = of.indices_by_line ? index : column;
  const int number = of.indices_by_line ? column : index;
  return widened(
      T{shared_half(spread(of.right + static_cast<Place>(line) * kLineBytes + static_cast<Place>(number) * 2))});
}

// The left operand's number for a row of the warp's and an index.
template <class T>
inline float left_number(const GroupProduct& of, int row, int index) {
  if (!of.left_shared) return widened_half<T>(of.left[row][index / 2], index % 2);
  const int own = thread_number() / 32 % 4 * 16 + row;
  const int line = of.left_by_line ? index : own;
  const int number = of.left_by_line ? own : index;
  return widened(
      T{shared_half(spread(of.left_place + static_cast<Place>(line) * kLineBytes + static_cast<Place>(number) * 2))});
}

template <class T>
inline void finish_product(const GroupProduct& of) {
  const int lane = thread_number() % 32;
  for (int n = 0; n < of.columns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      float sum = of.first ? of.before[n][e] : of.c[n][e];
      for (int k = 0; k < 16; ++k)
        sum += left_number<T>(of, lane / 4 + e / 2 * 8, k) * right_number<T>(of, n * 8 + lane % 4 * 2 + e % 2, k);
      of.c[n][e] = sum;
    }
  }
}

inline void wait_for_products() {
  MultiplyingThread& own = multiplying();
  for (int k = 0; k < own.count; ++k) own.products[k].finish(own.products[k]);
  own.count = 0;
}

inline void settle(float&) {}
inline void settle(u32&) {}

// A product that begins, of which the left operand is still to be said.
template <class T, int kColumns, bool kIndicesByLine, int kFirst, int kCount>
inline GroupProduct& begun_product(float (&c)[kCount][4], SharedOperand right, int add) {
  static_assert((kColumns == 32 || kColumns == 64) && kFirst + kColumns / 8 <= kCount);
  MultiplyingThread& own = multiplying();
  if (!own.sees_copies || !own.has_begun || own.count == kMostProducts || right.place % 32 != 0) {
    fprintf(stderr, "a product of what is not there yet, or of what is not aligned\n");
    abort();
  }
  GroupProduct& made = own.products[own.count++];
  made = {c + kFirst, kColumns, kIndicesByLine, true, {}, {}, right.place, false, false, 0, finish_product<T>};
  for (int k = 0; k + 1 < own.count; ++k) made.first = made.first && own.products[k].c != made.c;
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      if (add != 0 && made.first) made.before[n][e] = made.c[n][e];
      if (add == 0 && !made.first) abort();
      made.c[n][e] = __builtin_nanf("");
    }
  }
  return made;
}

template <class T, int kColumns, bool kIndicesByLine, int kFirst, int kCount>
inline void multiply_shared(float (&c)[kCount][4], const u32 (&a)[4], SharedOperand right, int add) {
  const Given* const all = exchanged(a);
  GroupProduct& made = begun_product<T, kColumns, kIndicesByLine, kFirst>(c, right, add);
  for (int row = 0; row < 16; ++row) {
    for (int pair = 0; pair < 8; ++pair)
      made.left[row][pair] = all[row % 8 * 4 + pair % 4].words[row / 8 + pair / 4 * 2];
  }
}

template <class T, int kColumns, bool kLeftByLine, bool kIndicesByLine, int kFirst, int kCount>
inline void multiply_both_shared(float (&c)[kCount][4], SharedOperand left, SharedOperand right, int add) {
  if (left.place % 32 != 0) abort();
  GroupProduct& made = begun_product<T, kColumns, kIndicesByLine, kFirst>(c, right, add);
  made.left_shared = true;
  made.left_by_line = kLeftByLine;
  made.left_place = left.place;
}

}  // namespace mr
