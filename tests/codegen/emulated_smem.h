// Emulates the shared memory (smem), the mbarriers and cp.async of codegen/prelude/cuda_matrices.h on one CPU thread;
// follows emulated_hardware.h. emulated_matrices.h and emulated_wgmma.h follow and emulate the rest.
// Test: tests/codegen/warp_specialization_test.cpp
//
// It is stricter than a GPU. A copy destroys the old data when it starts, and the new data is there only once it was
// waited for. Two warps may touch the same word, one of them writing, only if a barrier or an mbarrier orders them:
// each warp has a vector clock, and each word remembers its last write and the last read by every warp.
#pragma once

#define MR_MIN_BLOCKS(count)

namespace mr {

using SmemAddress = u32;

constexpr u32 kMaxSmemBytes = 227 * 1024;  // that a block may ask for
constexpr u32 kSmemWords = kMaxSmemBytes / 4;
constexpr int kMaxCopies = 512;  // pending, of a thread; every kernel has its own table
constexpr int kMaxMbarriers = 64;
constexpr int kMbarrierBytes = 8;
constexpr u32 kMbarrierMark = 0x6d626172;  // an mbarrier in smem: this word and its number

struct Copy {
  SmemAddress to;
  u32 bytes;
  const void* from;  // null: zeros
  int group;
};

struct CopyThread {
  Copy copies[kMaxCopies];
  int count;
  int groups;
  u64 block;  // that started them
};

struct Mbarrier {
  u32 phase;  // completed phases
  u32 arrivals;
  u32 missing;  // arrivals
  u64 block;    // that initialized it
  Clock arriving;
  Clock completed;  // of the last completed phase
};

// The last write of a word.
struct Write {
  u32 clock;   // of the thread's warp
  u32 fences;  // by the thread before it
  int thread;
};

// All zeros at first.
struct BlockState {
  alignas(16) unsigned char smem[kMaxSmemBytes];
  Write written[kSmemWords];
  u32 reads[kSmemWords * kMaxWarps];  // the clock of each of the block's warps when it last read each word
  CopyThread threads[kMaxThreads];
  Mbarrier mbarriers[kMaxMbarriers];
  int mbarrier_count;
  u64 mbarrier_block;
};

// Most of it is never touched and takes no memory.
inline BlockState& block_state() {
  static BlockState* const one = static_cast<BlockState*>(calloc(1, sizeof(BlockState)));
  return *one;
}

inline SmemAddress smem_base() { return 0; }

inline unsigned char* smem_bytes(SmemAddress at, u32 bytes) {
  const u32 size = machine().shared_bytes;
  if (at % bytes != 0 || at + bytes > size || size > kMaxSmemBytes) {
    fprintf(stderr, "access to %u bytes at %u is misaligned or outside shared memory\n", bytes, at);
    abort();
  }
  return block_state().smem + at;
}

__attribute__((noinline)) inline void report_race(SmemAddress at, int warp, int other) {
  fprintf(stderr, "race: warps %d and %d access shared memory at %u without a barrier between them\n", other, warp, at);
  abort();
}

// The words that an access touches.
struct WordRange {
  u32 first;
  u32 end;
};
inline WordRange words_of(SmemAddress at, u32 bytes) { return {at / 4, (at + bytes + 3) / 4}; }

// Accesses of a thread to smem; both check for races.
inline const unsigned char* read_smem(SmemAddress at, u32 bytes) {
  unsigned char* const data = smem_bytes(at, bytes);
  BlockState& all = block_state();
  const Machine& m = machine();
  const int warp = m.thread / 32;
  const u32* const own = m.clocks[warp].releases;
  const WordRange words = words_of(at, bytes);
  for (u32 word = words.first; word < words.end; ++word) {
    const Write& write = all.written[word];
    if (write.clock > own[write.thread / 32]) report_race(at, warp, write.thread / 32);
    all.reads[word * static_cast<u32>(m.warps) + static_cast<u32>(warp)] = own[warp];
  }
  return data;
}
inline unsigned char* write_smem(SmemAddress at, u32 bytes) {
  unsigned char* const data = smem_bytes(at, bytes);
  BlockState& all = block_state();
  const Machine& m = machine();
  const int warps = m.warps;
  const int warp = m.thread / 32;
  const u32* const own = m.clocks[warp].releases;
  const WordRange words = words_of(at, bytes);
  for (u32 word = words.first; word < words.end; ++word) {
    Write& write = all.written[word];
    if (write.clock > own[write.thread / 32]) report_race(at, warp, write.thread / 32);
    const u32* const reads = all.reads + word * static_cast<u32>(warps);
    for (int w = 0; w < warps; ++w)
      if (reads[w] > own[w]) report_race(at, warp, w);
    write = {own[warp], m.fences[m.thread], m.thread};
  }
  return data;
}

inline void fence_async_proxy() {
  Machine& m = machine();
  ++m.fences[m.thread];
  m.fenced_clocks[m.thread] = m.clocks[m.thread / 32];
  m.fenced_blocks[m.thread] = m.ran;
}

// --- cp.async ---

inline CopyThread& own_copies() {
  CopyThread& own = block_state().threads[thread_number()];
  if (own.block != machine().ran) own.count = own.groups = 0;
  own.block = machine().ran;
  return own;
}

inline void start_copy(SmemAddress to, const void* from, bool in_bounds, u32 bytes) {
  if (reinterpret_cast<u64>(from) % bytes != 0) {
    fprintf(stderr, "copy from an address that is not aligned to %u bytes\n", bytes);
    abort();
  }
  memset(write_smem(to, bytes), 0xff, bytes);
  CopyThread& own = own_copies();
  if (own.count == kMaxCopies) abort();
  own.copies[own.count++] = {to, bytes, in_bounds ? from : nullptr, own.groups};
}
inline void cp_async_16(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 16); }
inline void cp_async_8(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 8); }
inline void cp_async_4(SmemAddress to, const void* from, bool in_bounds) { start_copy(to, from, in_bounds, 4); }
inline void cp_async_commit() { ++own_copies().groups; }

// A copy is a write when it starts and another when it was waited for.
template <int kPending>
inline void cp_async_wait() {
  CopyThread& own = own_copies();
  int remaining = 0;
  for (int k = 0; k < own.count; ++k) {
    const Copy& copy = own.copies[k];
    if (copy.group >= own.groups - kPending) {
      own.copies[remaining++] = copy;
    } else if (copy.from == nullptr) {
      memset(write_smem(copy.to, copy.bytes), 0, copy.bytes);
    } else {
      memcpy(write_smem(copy.to, copy.bytes), copy.from, copy.bytes);
    }
  }
  own.count = remaining;
}

// --- mbarriers ---

inline void mbarrier_init(SmemAddress at, u32 arrivals) {
  BlockState& all = block_state();
  if (all.mbarrier_block != machine().ran) all.mbarrier_count = 0;
  all.mbarrier_block = machine().ran;
  if (all.mbarrier_count == kMaxMbarriers || arrivals == 0) abort();
  const u32 words[2] = {kMbarrierMark, static_cast<u32>(all.mbarrier_count)};
  memcpy(write_smem(at, kMbarrierBytes), words, kMbarrierBytes);
  all.mbarriers[all.mbarrier_count++] = {0, arrivals, arrivals, machine().ran, {}, {}};
}

// It is read like data: a race if no barrier follows its initialization.
inline Mbarrier& mbarrier_at(SmemAddress at) {
  BlockState& all = block_state();
  u32 words[2];
  memcpy(words, read_smem(at, kMbarrierBytes), kMbarrierBytes);
  if (words[0] != kMbarrierMark || words[1] >= kMaxMbarriers || all.mbarriers[words[1]].block != machine().ran) {
    fprintf(stderr, "there is no mbarrier at %u\n", at);
    abort();
  }
  return all.mbarriers[words[1]];
}

inline void mbarrier_arrive(SmemAddress at) {
  Mbarrier& barrier = mbarrier_at(at);
  Clock& own = machine().clocks[thread_number() / 32];
  release_fences();
  join(barrier.arriving, own);
  ++own.releases[thread_number() / 32];
  if (--barrier.missing != 0) return;
  barrier.missing = barrier.arrivals;
  barrier.completed = barrier.arriving;
  barrier.arriving = {};
  ++barrier.phase;
}

// The copies are done as soon as it is called.
inline void cp_async_mbarrier_arrive(SmemAddress at) {
  cp_async_commit();
  cp_async_wait<0>();
  mbarrier_arrive(at);
}

// As on a GPU, a thread that is two phases late waits for another one.
inline void mbarrier_wait(SmemAddress at, u32 parity) {
  const Mbarrier& barrier = mbarrier_at(at);
  while (barrier.phase % 2 == parity) wait_for_change(barrier.phase, "mbarrier", at);
  join(machine().clocks[thread_number() / 32], barrier.completed);
}

}  // namespace mr
