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

extern __shared__ __align__(16) unsigned char mr_shared_memory[];

// What a launch gives a block of it.
MR_DEVICE Place shared_memory() { return static_cast<Place>(__cvta_generic_to_shared(mr_shared_memory)); }

// 16 bytes, or 8; zeros where there is nothing. Done when wait_for_copies says so, and for other threads behind a
// barrier.
MR_DEVICE void copy_16(Place to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
MR_DEVICE void copy_8(Place to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(there ? 8 : 0) : "memory");
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
MR_DEVICE void load_floats(float (&to)[4], Place from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
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

// Of 8 x 8 halves in a warp's pieces: thread 4g + t has 2t and 2t + 1 of row g, and gets them of column g.
MR_DEVICE u32 transposed(u32 piece) {
  u32 other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(piece));
  return other;
}

// That of the thread whose number differs in these bits.
MR_DEVICE u32 shuffled_word(u32 word, int mask) { return __shfl_xor_sync(0xffffffffu, word, mask); }

MR_DEVICE long long bits_of(double x) { return __double_as_longlong(x); }

// A bit a thread of the warp.
MR_DEVICE u32 votes(bool yes) { return __ballot_sync(0xffffffffu, yes); }

}  // namespace mr
