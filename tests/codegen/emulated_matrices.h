// Emulates the matrix operations of a warp, and loads and stores, of codegen/prelude/cuda_matrices.h on one CPU thread;
// follows emulated_smem.h. Used by tests/codegen/attention_kernel_test.cpp.
#pragma once

namespace mr {

struct LaneWords {
  u32 words[6];
};
// The buffers alternate so that one meeting is enough.
inline LaneWords (*lane_words())[kMaxThreads] {
  static LaneWords buffers[2][kMaxThreads];
  return buffers;
}

// Words of all lanes of the warp, once every lane has passed its own.
template <int kCount>
inline const LaneWords* exchange(const u32 (&words)[kCount]) {
  const Machine& m = machine();
  const int own = m.thread;
  LaneWords* const all = lane_words()[m.own_warp[own / 32].generation % 2];
  memcpy(all[own].words, words, sizeof(words));
  meet_warp();
  return all + own / 32 * 32;
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
inline void warp_barrier() { meet_warp(); }
inline void load_smem_f32x4(float (&to)[4], SmemAddress from) { memcpy(to, read_smem(from, 16), 16); }
inline float load_smem_f32(SmemAddress from) {
  float x;
  memcpy(&x, read_smem(from, 4), 4);
  return x;
}
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

inline int warp_uniform(int x) {
  const u32 own[1] = {static_cast<u32>(x)};
  const LaneWords* const all = exchange(own);
  if (all[0].words[0] != own[0]) {
    fprintf(stderr, "warp_uniform: threads of a warp differ\n");
    abort();
  }
  return x;
}

}  // namespace mr
