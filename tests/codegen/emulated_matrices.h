// Emulates codegen/prelude/cuda_matrices.h on one CPU thread; follows emulated_hardware.h. Used by
// tests/codegen/attention_kernel_test.cpp.
//
// It is stricter than a GPU. A copy destroys the old data when it starts, and the new data is there only once it was
// waited for. Data that one warp stores must not be touched by another before a barrier.
#pragma once

#define MR_MIN_BLOCKS(count)

namespace mr {

using SmemAddress = u32;

constexpr u32 kMaxSmemBytes = 227 * 1024;  // that a block may ask for
constexpr int kMaxCopies = 512;            // pending, of a thread; every kernel has its own table

struct Copy {
  SmemAddress to;
  u32 bytes;
  const void* from;  // null: zeros
  int group;
};

struct CopyThread {
  Copy copies[kMaxCopies];
  int count = 0;
  int groups = 0;
};

struct LaneWords {
  u32 words[6];
};

constexpr int kMaxPendingWgmma = 32;   // of a thread
constexpr int kMaxWgmmaThreads = 256;  // of a block that uses wgmma

// A wgmma in flight. Operands in smem are read by wgmma_wait.
struct PendingWgmma {
  float (*c)[4];  // NaN until wgmma_wait
  int columns;
  bool trans_b;
  bool first;           // in flight with this c
  float initial[8][4];  // c before it
  u32 a_words[16][8];   // two halves each
  SmemAddress b;
  bool a_in_smem;  // then at a_address
  bool trans_a;
  SmemAddress a_address;
  void (*finish)(const PendingWgmma&);
};

struct WgmmaThread {
  PendingWgmma pending[kMaxPendingWgmma];
  int count = 0;
  bool fenced_proxy = false;  // waited-for copies are visible to wgmma
  bool fenced = false;
};

// Last access to a word of smem: by which warp, and after how many barriers. All threads of a block count the same
// barriers.
struct Access {
  u64 block = 0;  // number of blocks started
  u32 barriers = 0;
  int warp = 0;

  bool by_other_warp() const;
};
struct Accesses {
  Access written;
  Access read;
};

struct BlockState {
  alignas(16) unsigned char smem[kMaxSmemBytes];
  Accesses accesses[kMaxSmemBytes / 4];
  CopyThread threads[kMaxThreads];
  WgmmaThread wgmma[kMaxWgmmaThreads];
  LaneWords lane_words[2][kMaxThreads];  // words exchanged, in two alternating buffers so that one barrier is enough
  int turns[kMaxThreads];
};

inline BlockState& block_state() {
  static BlockState* const one = new BlockState();
  return *one;
}

inline SmemAddress smem_base() { return 0; }

inline unsigned char* smem_bytes(SmemAddress at, u32 bytes) {
  if (at % bytes != 0 || at + bytes > machine().shared_bytes || machine().shared_bytes > kMaxSmemBytes) {
    fprintf(stderr, "access to %u bytes at %u is misaligned or outside shared memory\n", bytes, at);
    abort();
  }
  return block_state().smem + at;
}

inline Access own_access() {
  const int own = thread_number();
  return {machine().ran, machine().barriers[own], own / 32};
}
inline bool Access::by_other_warp() const {
  const Access own = own_access();
  return block == own.block && barriers == own.barriers && warp != own.warp;
}
inline void report_race(SmemAddress at) {
  fprintf(stderr, "race: two warps access shared memory at %u without a barrier\n", at);
  abort();
}
// Accesses of a thread to smem; both check for races.
inline const unsigned char* read_smem(SmemAddress at, u32 bytes) {
  for (SmemAddress word = at / 4; word < (at + bytes + 3) / 4; ++word) {
    Accesses& accesses = block_state().accesses[word];
    if (accesses.written.by_other_warp()) report_race(at);
    accesses.read = own_access();
  }
  return smem_bytes(at, bytes);
}
inline unsigned char* write_smem(SmemAddress at, u32 bytes) {
  for (SmemAddress word = at / 4; word < (at + bytes + 3) / 4; ++word) {
    Accesses& accesses = block_state().accesses[word];
    if (accesses.written.by_other_warp() || accesses.read.by_other_warp()) report_race(at);
    accesses.written = own_access();
  }
  return smem_bytes(at, bytes);
}

inline void start_copy(SmemAddress to, const void* from, bool in_bounds, u32 bytes) {
  if (reinterpret_cast<u64>(from) % bytes != 0) {
    fprintf(stderr, "copy from an address that is not aligned to %u bytes\n", bytes);
    abort();
  }
  memset(write_smem(to, bytes), 0xff, bytes);
  CopyThread& own = block_state().threads[thread_number()];
  if (own.count == kMaxCopies) abort();
  own.copies[own.count++] = {to, bytes, in_bounds ? from : nullptr, own.groups};
}
inline void cp_async_16(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 16); }
inline void cp_async_8(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 8); }
inline void cp_async_4(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 4); }
inline void cp_async_commit() { ++block_state().threads[thread_number()].groups; }

template <int kPending>
inline void cp_async_wait() {
  CopyThread& own = block_state().threads[thread_number()];
  int remaining = 0;
  for (int k = 0; k < own.count; ++k) {
    const Copy& copy = own.copies[k];
    if (copy.group >= own.groups - kPending) {
      own.copies[remaining++] = copy;
    } else if (copy.from == nullptr) {
      memset(smem_bytes(copy.to, copy.bytes), 0, copy.bytes);
    } else {
      memcpy(smem_bytes(copy.to, copy.bytes), copy.from, copy.bytes);
    }
  }
  own.count = remaining;
  if (thread_number() < kMaxWgmmaThreads) block_state().wgmma[thread_number()].fenced_proxy = false;
}

// Words of all lanes of the warp, once every thread has passed its own.
template <int kCount>
inline const LaneWords* exchange(const u32 (&words)[kCount]) {
  BlockState& all = block_state();
  const int own = thread_number();
  const int turn = all.turns[own]++ % 2;
  memcpy(all.lane_words[turn][own].words, words, sizeof(words));
  wait_for_others();
  return all.lane_words[turn] + thread_number() / 32 * 32;
}

inline u16 smem_half(SmemAddress at) {
  u16 half;
  memcpy(&half, smem_bytes(at, 2), 2);
  return half;
}

inline void ldmatrix_x4(u32 (&to)[4], SmemAddress row, bool transposed) {
  read_smem(row, 16);
  const u32 address[1] = {row};
  const LaneWords* const rows = exchange(address);
  const int lane = thread_number() % 32;
  const int first = lane % 4 * 2;
  const int other = lane / 4;
  for (int k = 0; k < 4; ++k) {
    u32 words[2];
    for (int n = 0; n < 2; ++n) {
      const int line = transposed ? first + n : other;
      const int column = transposed ? other : first + n;
      words[n] = smem_half(rows[8 * k + line].words[0] + 2 * column);
    }
    to[k] = words[0] | words[1] << 16;
  }
}
inline void ldmatrix_x4(u32 (&to)[4], SmemAddress row) { ldmatrix_x4(to, row, false); }
inline void ldmatrix_x4_trans(u32 (&to)[4], SmemAddress row) { ldmatrix_x4(to, row, true); }
inline void stmatrix_x4(SmemAddress row, const u32 (&from)[4], bool transposed) {
  write_smem(row, 16);
  const u32 words[5] = {row, from[0], from[1], from[2], from[3]};
  const LaneWords* const all = exchange(words);
  const int lane = thread_number() % 32;
  const int first = lane % 4 * 2;
  const int other = lane / 4;
  for (int k = 0; k < 4; ++k) {
    for (int n = 0; n < 2; ++n) {
      const int line = transposed ? first + n : other;
      const int column = transposed ? other : first + n;
      const u16 half = static_cast<u16>(from[k] >> 16 * n);
      memcpy(smem_bytes(all[8 * k + line].words[0] + 2 * column, 2), &half, 2);
    }
  }
}
inline void stmatrix_x4(SmemAddress row, const u32 (&from)[4]) { stmatrix_x4(row, from, false); }
inline void stmatrix_x4_trans(SmemAddress row, const u32 (&from)[4]) { stmatrix_x4(row, from, true); }
inline void load_smem_u32x4(u32 (&to)[4], SmemAddress from) { memcpy(to, read_smem(from, 16), 16); }
inline void store_smem_u32x4(SmemAddress to, const u32 (&from)[4]) { memcpy(write_smem(to, 16), from, 16); }
inline void warp_barrier() { wait_for_others(); }
inline void load_smem_f32x4(float (&to)[4], SmemAddress from) { memcpy(to, read_smem(from, 16), 16); }
inline u32 load_smem_u16(SmemAddress from) {
  read_smem(from, 2);
  return smem_half(from);
}
inline u32 load_smem_u32(SmemAddress from) {
  u32 word;
  memcpy(&word, read_smem(from, 4), 4);
  return word;
}
inline void store_smem_u32(SmemAddress to, u32 word) { memcpy(write_smem(to, 4), &word, 4); }
inline void store_smem_f32x2(SmemAddress to, float first, float second) {
  const float both[2] = {first, second};
  memcpy(write_smem(to, 8), both, 8);
}

template <class T>
inline float widened_half(u32 word, int element) {
  return widened(T{static_cast<u16>(element == 0 ? word : word >> 16)});
}

template <class T>
inline void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 words[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const LaneWords* const all = exchange(words);
  const int lane = thread_number() % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4;
    const int column = lane % 4 * 2 + e % 2;
    float sum = c[e];
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2;
      const float x = widened_half<T>(all[4 * row + pair].words[e / 2 + k / 8 * 2], k % 2);
      const float y = widened_half<T>(all[4 * column + pair].words[4 + k / 8], k % 2);
      sum += x * y;
    }
    c[e] = sum;
  }
}

template <class T>
inline u32 pack_halves(float first, float second) {
  T low;
  T high;
  narrow(first, low);
  narrow(second, high);
  return static_cast<u32>(low.bits) | static_cast<u32>(high.bits) << 16;
}

// An exponential as inexact as the hardware's.
inline float exp2_approx(float x) {
  const float y = __builtin_exp2f(x) * (1 + 0x1p-23f);
  return y < 0x1p-126f ? 0 : y;
}

inline u32 movmatrix_trans(u32 fragment) {
  const u32 own[1] = {fragment};
  const LaneWords* const all = exchange(own);
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

inline int assume_non_negative(int x) { return x; }

inline u32 shuffle_xor_u32(u32 word, int mask) {
  const u32 own[1] = {word};
  const LaneWords* const all = exchange(own);
  return all[thread_number() % 32 ^ mask].words[0];
}

inline long long bits_of(double x) {
  long long bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline u32 append_at_least_bit(u32 bits, u32 x, u32 threshold) { return 2 * bits + (x >= threshold ? 1 : 0); }

inline u32 ballot(bool yes) {
  const u32 own[1] = {yes ? 1u : 0u};
  const LaneWords* const all = exchange(own);
  u32 bits = 0;
  for (int k = 0; k < 32; ++k) bits |= all[k].words[0] << k;
  return bits;
}

// --- wgmma ---

constexpr SmemAddress kSwizzleBytes = 128;
inline SmemAddress swizzle(SmemAddress offset) { return offset ^ (offset >> 3 & 0x70); }

struct SmemDescriptor {
  SmemAddress address;

  SmemDescriptor advanced(int bytes) const { return {address + static_cast<SmemAddress>(bytes)}; }
};
inline SmemDescriptor make_descriptor(SmemAddress address) { return {address}; }

inline int warp_uniform(int x) {
  const u32 own[1] = {static_cast<u32>(x)};
  const LaneWords* const all = exchange(own);
  if (all[0].words[0] != own[0]) {
    fprintf(stderr, "warp_uniform: threads of a warp differ\n");
    abort();
  }
  return x;
}

inline WgmmaThread& wgmma() {
  if (thread_number() >= kMaxWgmmaThreads) abort();
  return block_state().wgmma[thread_number()];
}

inline void fence_async_proxy() { wgmma().fenced_proxy = true; }
inline void wgmma_fence() { wgmma().fenced = true; }
inline void wgmma_commit() { wgmma().fenced = false; }

// B at (index, column), and A at (row of the warp, index).
template <class T>
inline float b_value(const PendingWgmma& w, int column, int index) {
  const int line = w.trans_b ? index : column;
  const int element = w.trans_b ? column : index;
  return widened(T{smem_half(
      swizzle(w.b + static_cast<SmemAddress>(line) * kSwizzleBytes + static_cast<SmemAddress>(element) * 2))});
}

template <class T>
inline float a_value(const PendingWgmma& w, int row, int index) {
  if (!w.a_in_smem) return widened_half<T>(w.a_words[row][index / 2], index % 2);
  const int own = thread_number() / 32 % 4 * 16 + row;
  const int line = w.trans_a ? index : own;
  const int element = w.trans_a ? own : index;
  return widened(T{smem_half(
      swizzle(w.a_address + static_cast<SmemAddress>(line) * kSwizzleBytes + static_cast<SmemAddress>(element) * 2))});
}

template <class T>
inline void complete(const PendingWgmma& w) {
  const int lane = thread_number() % 32;
  for (int n = 0; n < w.columns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      float sum = w.first ? w.initial[n][e] : w.c[n][e];
      for (int k = 0; k < 16; ++k)
        sum += a_value<T>(w, lane / 4 + e / 2 * 8, k) * b_value<T>(w, n * 8 + lane % 4 * 2 + e % 2, k);
      w.c[n][e] = sum;
    }
  }
}

inline void wgmma_wait() {
  WgmmaThread& own = wgmma();
  for (int k = 0; k < own.count; ++k) own.pending[k].finish(own.pending[k]);
  own.count = 0;
}

inline void fence_operand(float&) {}
inline void fence_operand(u32&) {}

// Starts a wgmma; the caller adds the A operand.
template <class T, int kColumns, bool kTransB, int kFirstN, int kCount>
inline PendingWgmma& start_wgmma(float (&c)[kCount][4], SmemDescriptor b, int accumulate) {
  static_assert((kColumns == 32 || kColumns == 64) && kFirstN + kColumns / 8 <= kCount);
  WgmmaThread& own = wgmma();
  if (!own.fenced_proxy || !own.fenced || own.count == kMaxPendingWgmma || b.address % 32 != 0) {
    fprintf(stderr, "wgmma without a fence, on misaligned operands, or with too many in flight\n");
    abort();
  }
  PendingWgmma& started = own.pending[own.count++];
  started = {c + kFirstN, kColumns, kTransB, true, {}, {}, b.address, false, false, 0, complete<T>};
  for (int k = 0; k + 1 < own.count; ++k) started.first = started.first && own.pending[k].c != started.c;
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      if (accumulate != 0 && started.first) started.initial[n][e] = started.c[n][e];
      if (accumulate == 0 && !started.first) abort();
      started.c[n][e] = __builtin_nanf("");
    }
  }
  return started;
}

template <class T, int kColumns, bool kTransB, int kFirstN, int kCount>
inline void wgmma_rs(float (&c)[kCount][4], const u32 (&a)[4], SmemDescriptor b, int accumulate) {
  const LaneWords* const all = exchange(a);
  PendingWgmma& started = start_wgmma<T, kColumns, kTransB, kFirstN>(c, b, accumulate);
  for (int row = 0; row < 16; ++row) {
    for (int pair = 0; pair < 8; ++pair)
      started.a_words[row][pair] = all[row % 8 * 4 + pair % 4].words[row / 8 + pair / 4 * 2];
  }
}

template <class T, int kColumns, bool kTransA, bool kTransB, int kFirstN, int kCount>
inline void wgmma_ss(float (&c)[kCount][4], SmemDescriptor a, SmemDescriptor b, int accumulate) {
  if (a.address % 32 != 0) abort();
  PendingWgmma& started = start_wgmma<T, kColumns, kTransB, kFirstN>(c, b, accumulate);
  started.a_in_smem = true;
  started.trans_a = kTransA;
  started.a_address = a.address;
}

}  // namespace mr
