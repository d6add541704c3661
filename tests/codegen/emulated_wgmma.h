// Emulates wgmma of codegen/prelude/cuda_matrices.h on one CPU thread; follows emulated_matrices.h. Used by
// tests/codegen/attention_kernel_test.cpp.
// Test: tests/codegen/warp_specialization_test.cpp
//
// Stricter than a GPU: accumulators are NaN while a wgmma is in flight. Operands in smem count as read twice: when the
// wgmma starts, and when the wait for it ends, which is when the emulation reads them. Writes in between are races. The
// thread that wrote an operand must have called fence_async_proxy after the write and before the barrier that told the
// reader, or the reader after the barrier.
#pragma once

namespace mr {

constexpr int kMaxPendingWgmma = 64;   // of a thread
constexpr int kMaxWgmmaThreads = 512;  // of a block that uses wgmma
constexpr int kMaxWgmmaColumns = 128;

constexpr SmemAddress kSwizzleBytes = 128;
inline SmemAddress swizzle(SmemAddress offset) { return offset ^ (offset >> 3 & 0x70); }

struct SmemDescriptor {
  SmemAddress address;
  u32 run_bytes;

  SmemDescriptor advanced(int bytes) const { return {address + static_cast<SmemAddress>(bytes), run_bytes}; }
};
inline SmemDescriptor make_descriptor(SmemAddress address, int run_bytes = 16) {
  return {address, static_cast<u32>(run_bytes)};
}

// An operand in smem as a warp sees it: `count` rows of A, or columns of B, from `first` on, with 16 k each.
struct WgmmaOperand {
  SmemDescriptor at;
  bool trans;  // a line has one k
  int first;
  int count;

  // The hardware ignores run_bytes unless lines have one k.
  SmemAddress address(int n, int k) const {
    const u32 line = static_cast<u32>(trans ? k : first + n);
    const u32 element = static_cast<u32>(trans ? first + n : k);
    return swizzle(at.address + element / 64 * at.run_bytes + line * kSwizzleBytes + element % 64 * 2);
  }
};

struct PendingWgmma {
  float (*c)[4];  // NaN while it is in flight
  int columns;
  int group;
  float sums[kMaxWgmmaColumns / 8][4];  // c before it
  u32 a_words[2][8];                    // two halves each, of the thread's rows: unless A is in smem
  WgmmaOperand b;
  bool a_in_smem;
  WgmmaOperand a;
  Clock issued;  // the warp's; only in its first lane
  void (*finish)(PendingWgmma&);
};

struct WgmmaThread {
  PendingWgmma pending[kMaxPendingWgmma];
  int count;
  int groups;
  bool fenced;
  u64 block;  // that started them
};

// All zeros at first.
inline WgmmaThread& wgmma() {
  static WgmmaThread* const all = static_cast<WgmmaThread*>(calloc(kMaxWgmmaThreads, sizeof(WgmmaThread)));
  if (thread_number() >= kMaxWgmmaThreads) abort();
  WgmmaThread& own = all[thread_number()];
  if (own.block != machine().ran) own.count = own.groups = 0;
  own.block = machine().ran;
  return own;
}

// --- Checks of operands in smem, by the first lane for its warp ---

template <class F>
inline void for_each_chunk(const WgmmaOperand& operand, const F& visit) {
  for (int n = 0; n < operand.count; n += operand.trans ? 8 : 1)
    for (int k = 0; k < 16; k += operand.trans ? 1 : 8) visit(operand.address(n, k));
}

inline void check_fenced(SmemAddress at) {
  const Machine& m = machine();
  for (u32 word = at / 4; word < at / 4 + 4; ++word) {
    const Write& write = block_state().written[word];
    const u32* const fences = write.thread / 32 == m.thread / 32 ? m.fences : m.released_fences;
    if (fences[write.thread] > write.fences) continue;
    if (m.fenced_blocks[m.thread] == m.ran && m.fenced_clocks[m.thread].releases[write.thread / 32] >= write.clock)
      continue;
    fprintf(stderr, "wgmma reads shared memory at %u: no fence_async_proxy after thread %d wrote it\n", at,
            write.thread);
    abort();
  }
}
inline void start_reading(const WgmmaOperand& operand) {
  for_each_chunk(operand, [](SmemAddress at) {
    read_smem(at, 16);
    check_fenced(at);
  });
}
inline void end_reading(const WgmmaOperand& operand, const Clock& issued) {
  for_each_chunk(operand, [&](SmemAddress at) {
    for (u32 word = at / 4; word < at / 4 + 4; ++word) {
      const Write& write = block_state().written[word];
      if (write.clock > issued.releases[write.thread / 32]) report_race(at, thread_number() / 32, write.thread / 32);
    }
    read_smem(at, 16);
  });
}

// --- Results ---

template <class T>
inline float smem_value(const WgmmaOperand& operand, int n, int k) {
  return widened(T{smem_half(operand.address(n, k))});
}

template <class T>
inline void complete(PendingWgmma& w) {
  const int lane = thread_number() % 32;
  float a[2][16];
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 16; ++k)
      a[half][k] =
          w.a_in_smem ? smem_value<T>(w.a, lane / 4 + half * 8, k) : widened_half<T>(w.a_words[half][k / 2], k % 2);
  }
  for (int column = lane % 4 * 2; column < w.columns; column += column % 2 == 0 ? 1 : 7) {
    float b[16];
    for (int k = 0; k < 16; ++k) b[k] = smem_value<T>(w.b, column, k);
    for (int half = 0; half < 2; ++half) {
      float sum = w.sums[column / 8][half * 2 + column % 2];
      for (int k = 0; k < 16; ++k) sum += a[half][k] * b[k];
      w.sums[column / 8][half * 2 + column % 2] = sum;
    }
  }
}

// Passes its result to the next wgmma in flight on the same accumulators; without one, they become valid.
inline void finish(WgmmaThread& own, int at) {
  PendingWgmma& w = own.pending[at];
  if (thread_number() % 32 == 0) {
    end_reading(w.b, w.issued);
    if (w.a_in_smem) end_reading(w.a, w.issued);
  }
  w.finish(w);
  const size_t bytes = sizeof(float[4]) * static_cast<size_t>(w.columns / 8);
  for (int next = at + 1; next < own.count; ++next) {
    if (own.pending[next].c != w.c) continue;
    memcpy(own.pending[next].sums, w.sums, bytes);
    return;
  }
  memcpy(w.c, w.sums, bytes);
}

// The warp meets at the end: one thread may speak for all then.
template <int kPending>
inline void wgmma_wait_but() {
  WgmmaThread& own = wgmma();
  int done = 0;
  while (done < own.count && own.pending[done].group < own.groups - kPending) finish(own, done++);
  for (int k = done; k < own.count; ++k) own.pending[k - done] = own.pending[k];
  own.count -= done;
  meet_warp();
}
inline void wgmma_wait() { wgmma_wait_but<0>(); }

inline void wgmma_fence() {
  wgmma().fenced = true;
  meet_warp();
}
inline void wgmma_commit() {
  wgmma().fenced = false;
  ++wgmma().groups;
}

inline void fence_operand(float&) {}
inline void fence_operand(u32&) {}

template <int kRegisters>
inline void reduce_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
}
template <int kRegisters>
inline void raise_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
}

// --- Starting ---

// Checks that no wgmma in flight has some of the same accumulators and some others. Moves c into the wgmma unless
// another one will.
inline void take_accumulators(const WgmmaThread& own, PendingWgmma& started, bool accumulate) {
  const int count = started.columns / 8;
  bool first = true;
  for (const PendingWgmma* other = own.pending; other != &started; ++other) {
    const bool same = other->c == started.c && other->columns == started.columns;
    if ((same && !accumulate) || (!same && other->c < started.c + count && started.c < other->c + other->columns / 8)) {
      fprintf(stderr, "wgmma on accumulators of another one in flight\n");
      abort();
    }
    first = first && !same;
  }
  for (int n = 0; n < count; ++n) {
    for (int e = 0; e < 4; ++e) {
      if (accumulate && first) started.sums[n][e] = started.c[n][e];
      started.c[n][e] = __builtin_nanf("");
    }
  }
}

// The caller adds the A operand.
template <class T, int kColumns, bool kTransB, int kFirstN, int kCount>
inline PendingWgmma& start_wgmma(float (&c)[kCount][4], SmemDescriptor b, int accumulate) {
  static_assert((kColumns == 32 || kColumns == 64 || kColumns == 128) && kFirstN + kColumns / 8 <= kCount);
  WgmmaThread& own = wgmma();
  const u32 run_columns = kColumns < 64 ? kColumns : 64;
  if (!own.fenced || own.count == kMaxPendingWgmma || b.address % 32 != 0 ||
      (kTransB && b.address % kSwizzleBytes / 2 + run_columns > 64)) {
    fprintf(stderr, "wgmma without a fence, on misaligned operands, or with too many in flight\n");
    abort();
  }
  PendingWgmma& started = own.pending[own.count++];
  started.c = c + kFirstN;
  started.columns = kColumns;
  started.group = own.groups;
  started.b = {b, kTransB, 0, kColumns};
  started.a_in_smem = false;
  started.finish = complete<T>;
  memset(started.sums, 0, sizeof(started.sums));
  take_accumulators(own, started, accumulate != 0);
  if (thread_number() % 32 == 0) {
    started.issued = machine().clocks[thread_number() / 32];
    start_reading(started.b);
  }
  return started;
}

template <class T, int kColumns, bool kTransB, int kFirstN, int kCount>
inline void wgmma_rs(float (&c)[kCount][4], const u32 (&a)[4], SmemDescriptor b, int accumulate) {
  const LaneWords* const all = exchange(a);
  PendingWgmma& started = start_wgmma<T, kColumns, kTransB, kFirstN>(c, b, accumulate);
  const int row = thread_number() % 32 / 4;
  for (int pair = 0; pair < 8; ++pair) {
    for (int half = 0; half < 2; ++half)
      started.a_words[half][pair] = all[row * 4 + pair % 4].words[half + pair / 4 * 2];
  }
}

template <class T, int kColumns, bool kTransA, bool kTransB, int kFirstN, int kCount>
inline void wgmma_ss(float (&c)[kCount][4], SmemDescriptor a, SmemDescriptor b, int accumulate) {
  if (a.address % 32 != 0) abort();
  PendingWgmma& started = start_wgmma<T, kColumns, kTransB, kFirstN>(c, b, accumulate);
  started.a_in_smem = true;
  started.a = {a, kTransA, thread_number() / 32 % 4 * 16, 16};
  if (thread_number() % 32 == 0) start_reading(started.a);
}

}  // namespace mr
