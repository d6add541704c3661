// What kernels of an attention take of the hardware, and nothing else: products of small matrices by the tensor cores,
// shared memory of any size, copies into it that nobody waits for at once. It stands behind cuda_prelude.h; the tests
// have another one, which runs the same kernels on a CPU.
//
// A product is of a warp: 16 rows times 8 columns over 16 indices. A thread has pieces of the matrices. With g its
// number in the warp divided by 4 and t the rest: of the result rows g and g + 8 of columns 2t and 2t + 1; of the left
// operand the same rows of 2t, 2t + 1, and then of 2t + 8, 2t + 9; of the right one these indices of column g.
#pragma once

// In MR_KERNEL's place of threads, behind them: how many blocks a multiprocessor shall have at a time, at least; the
// compiler gives threads so many registers, and no more.
#define MR_BLOCKS(count) , count

namespace mr {

// Where something lies in shared memory: bytes.
using Place = u32;

extern __shared__ __align__(1024) unsigned char mr_shared_memory[];

// What a launch gives a block of it.
MR_DEVICE Place shared_memory() { return static_cast<Place>(__cvta_generic_to_shared(mr_shared_memory)); }

// 16 bytes, 8 or 4; zeros where there is nothing. Done when wait_for_copies says so, and for other threads behind a
// barrier.
MR_DEVICE void copy_16(Place to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
MR_DEVICE void copy_8(Place to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(there ? 8 : 0) : "memory");
}
MR_DEVICE void copy_4(Place to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
// Copies since the last call are a group.
MR_DEVICE void group_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups are done but the youngest kGroups.
template <int kGroups>
MR_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Four matrices of 8 x 8 halves; thread n says where row n % 8 of matrix n / 8 begins. Thread 4g + t gets 2t and 2t + 1
// of each one's row g, or of its column g.
MR_DEVICE void load_matrices(u32 (&to)[4], Place row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
MR_DEVICE void load_matrices_transposed(u32 (&to)[4], Place row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
MR_DEVICE void store_word(Place to, u32 word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

// Of 8 x 8 halves in a warp's pieces: thread 4g + t has 2t and 2t + 1 of row g, and gets them of column g.
MR_DEVICE u32 transposed(u32 piece) {
  u32 other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(piece));
  return other;
}

// What load_matrices gets, the other way round.
MR_DEVICE void store_matrices(Place row, const u32 (&from)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  MR_UNROLL
  for (int n = 0; n < 4; ++n)
    store_word(__shfl_sync(0xffffffffu, row, n * 8 + threadIdx.x % 32 / 4) + threadIdx.x % 4 * 4, from[n]);
#endif
}
MR_DEVICE void store_matrices_transposed(Place row, const u32 (&from)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  const u32 others[4] = {transposed(from[0]), transposed(from[1]), transposed(from[2]), transposed(from[3])};
  store_matrices(row, others);
#endif
}
// 16 bytes.
MR_DEVICE void load_words(u32 (&to)[4], Place from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
MR_DEVICE void store_words(Place to, const u32 (&from)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]),
               "r"(from[3])
               : "memory");
}
// What a warp's threads have stored there, all of them see behind it.
MR_DEVICE void warp_barrier() { __syncwarp(); }
MR_DEVICE void load_floats(float (&to)[4], Place from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}

MR_DEVICE u32 load_half(Place from) {
  u16 half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
  return half;
}

MR_DEVICE u32 load_word(Place from) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
MR_DEVICE void store_floats(Place to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

// c += a b
template <class T>
MR_DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <>
MR_DEVICE void multiply<f16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
MR_DEVICE void multiply<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers as halves, the first in the lower half of the word.
template <class T>
MR_DEVICE u32 halves_of(float first, float second);
template <>
MR_DEVICE u32 halves_of<f16>(float first, float second) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
template <>
MR_DEVICE u32 halves_of<bf16>(float first, float second) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Right to about 2^-22; 0 where float would be denormal.
MR_DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What is known of a number, and the compiler does not see: divisions are by shifts then.
MR_DEVICE int not_negative(int x) {
  __builtin_assume(x >= 0);
  return x;
}

// That of the thread whose number differs in these bits.
MR_DEVICE u32 shuffled_word(u32 word, int mask) { return __shfl_xor_sync(0xffffffffu, word, mask); }

MR_DEVICE long long bits_of(double x) { return __double_as_longlong(x); }

// A bit more at the end: whether x is not below the threshold. Two bits and one less what is borrowed.
MR_DEVICE u32 with_bit(u32 bits, u32 x, u32 threshold) {
  asm("{.reg .u32 rest, inverse; not.b32 inverse, %0; sub.cc.u32 rest, %1, %2; subc.u32 %0, %0, inverse;}"
      : "+r"(bits)
      : "r"(x), "r"(threshold));
  return bits;
}

// A bit a thread of the warp.
MR_DEVICE u32 votes(bool yes) { return __ballot_sync(0xffffffffu, yes); }

// --- Products of a group of four warps, on Hopper ---

// Each warp has 16 rows, and all read one right operand where it is in shared memory. Results are there when
// wait_for_products and `settle` say so; until then nothing is to touch them.

// Lines of 64 halves, one behind the other, of which eight are a block: the 16 bytes at a place are found where its
// number in the line and the line's number in the block differ. A block begins at a multiple of 1024.
constexpr Place kLineBytes = 128;
MR_DEVICE Place spread(Place place) { return place ^ (place >> 3 & 0x70); }

// Copies that were waited for are there for products too, behind a barrier. Those in shared memory: of all memory ptxas
// would have the whole GPU see what the thread has written (MEMBAR.ALL.GPU), and not its block (MEMBAR.ALL.CTA).
MR_DEVICE void show_copies_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

MR_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MR_DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
MR_DEVICE void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// What the compiler keeps in this place: neither before it nor behind it.
MR_DEVICE void settle(float& x) { asm volatile("" : "+f"(x)::"memory"); }
MR_DEVICE void settle(u32& x) { asm volatile("" : "+r"(x)::"memory"); }

// An operand in shared memory: where it begins, its blocks one behind the other, in the words that a product takes.
// Made once for what lies together: one that begins some bytes further, a multiple of 16, is a single addition.
struct SharedOperand {
  u32 low;

  MR_DEVICE SharedOperand behind(int bytes) const { return {low + static_cast<u32>(bytes / 16)}; }
  MR_DEVICE u64 words() const { return static_cast<u64>(8 * kLineBytes / 16 | 1u << 30) << 32 | low; }
};
MR_DEVICE SharedOperand operand_at(Place place) { return {place >> 4 | 1u << 16}; }

// What is the same in a warp's threads, where the compiler does not see that it is.
MR_DEVICE int of_warp(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// Of 64 or 32 columns over 16 indices: c = a b, or added. kIndicesByLine: a line of the right operand is of one index,
// and not of one column.
#define MR_OUT_4(n) "+f"(c[kFirst + n][0]), "+f"(c[kFirst + n][1]), "+f"(c[kFirst + n][2]), "+f"(c[kFirst + n][3])
#define MR_OUT_32 MR_OUT_4(0), MR_OUT_4(1), MR_OUT_4(2), MR_OUT_4(3)
#define MR_OUT_64 MR_OUT_32, MR_OUT_4(4), MR_OUT_4(5), MR_OUT_4(6), MR_OUT_4(7)
#define MR_COLUMNS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MR_COLUMNS_64 \
  MR_COLUMNS_32       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
// `add_number`: of what says whether it is added. Behind `operands`: what the left one is.
#define MR_PRODUCT(columns, add_number, type, operands, ...)                                                  \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" add_number ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
               "k16.f32." type "." type " {" MR_COLUMNS_##columns "}, " operands ";}"                         \
               : MR_OUT_##columns                                                                             \
               : __VA_ARGS__, "l"(b), "r"(add)                                                                \
               : "memory")
#define MR_PIECES "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define MR_PRODUCT_32(type, by_line) \
  MR_PRODUCT(32, "21", type, "{%16, %17, %18, %19}, %20, p, 1, 1, " by_line, MR_PIECES)
#define MR_PRODUCT_64(type, by_line) \
  MR_PRODUCT(64, "37", type, "{%32, %33, %34, %35}, %36, p, 1, 1, " by_line, MR_PIECES)
// The same with a left operand in shared memory: rows by line, or indices.
#define MR_PRODUCT_OF_SHARED_32(type, left_by_line, by_line) \
  MR_PRODUCT(32, "18", type, "%16, %17, p, 1, 1, " left_by_line ", " by_line, "l"(a))
#define MR_PRODUCT_OF_SHARED_64(type, left_by_line, by_line) \
  MR_PRODUCT(64, "34", type, "%32, %33, p, 1, 1, " left_by_line ", " by_line, "l"(a))

#define MR_PRODUCT_OF_SHARED(product, type)                              \
  if constexpr (kLeftByLine && kIndicesByLine) product(type, "1", "1");  \
  if constexpr (kLeftByLine && !kIndicesByLine) product(type, "1", "0"); \
  if constexpr (!kLeftByLine && kIndicesByLine) product(type, "0", "1"); \
  if constexpr (!kLeftByLine && !kIndicesByLine) product(type, "0", "0")

template <class T>
constexpr bool kIsF16 = false;
template <>
constexpr bool kIsF16<f16> = true;

template <class T, int kColumns, bool kIndicesByLine, int kFirst, int kCount>
MR_DEVICE void multiply_shared(float (&c)[kCount][4], const u32 (&a)[4], SharedOperand right, int add) {
  static_assert(kColumns == 32 || kColumns == 64);
  const u64 b = right.words();
  if constexpr (kColumns == 64) {
    if constexpr (kIsF16<T> && kIndicesByLine) MR_PRODUCT_64("f16", "1");
    if constexpr (kIsF16<T> && !kIndicesByLine) MR_PRODUCT_64("f16", "0");
    if constexpr (!kIsF16<T> && kIndicesByLine) MR_PRODUCT_64("bf16", "1");
    if constexpr (!kIsF16<T> && !kIndicesByLine) MR_PRODUCT_64("bf16", "0");
  } else {
    if constexpr (kIsF16<T> && kIndicesByLine) MR_PRODUCT_32("f16", "1");
    if constexpr (kIsF16<T> && !kIndicesByLine) MR_PRODUCT_32("f16", "0");
    if constexpr (!kIsF16<T> && kIndicesByLine) MR_PRODUCT_32("bf16", "1");
    if constexpr (!kIsF16<T> && !kIndicesByLine) MR_PRODUCT_32("bf16", "0");
  }
}

// Both in shared memory; kLeftByLine: a line of the left one is of one index, and not of one row. `left`: where the
// group's 64 rows begin.
template <class T, int kColumns, bool kLeftByLine, bool kIndicesByLine, int kFirst, int kCount>
MR_DEVICE void multiply_both_shared(float (&c)[kCount][4], SharedOperand left, SharedOperand right, int add) {
  static_assert(kColumns == 32 || kColumns == 64);
  const u64 a = left.words();
  const u64 b = right.words();
  if constexpr (kIsF16<T> && kColumns == 64) {
    MR_PRODUCT_OF_SHARED(MR_PRODUCT_OF_SHARED_64, "f16");
  } else if constexpr (kIsF16<T>) {
    MR_PRODUCT_OF_SHARED(MR_PRODUCT_OF_SHARED_32, "f16");
  } else if constexpr (kColumns == 64) {
    MR_PRODUCT_OF_SHARED(MR_PRODUCT_OF_SHARED_64, "bf16");
  } else {
    MR_PRODUCT_OF_SHARED(MR_PRODUCT_OF_SHARED_32, "bf16");
  }
}

}  // namespace mr
