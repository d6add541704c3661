// Hardware operations that the kernels of fused attention use, and nothing else: mma and wgmma, dynamic shared memory
// (smem), cp.async, mbarriers. The text follows cuda_prelude.h in a kernel's source; to run the same kernels on a CPU,
// emulated_smem.h, emulated_matrices.h and emulated_wgmma.h of tests/codegen/ replace it.
// Test: tests/codegen/attention_kernel_test.cpp
// Test: tests/codegen/warp_specialization_test.cpp
//
// An mma multiplies A (16 x 16) by B (16 x 8). Each thread of the warp holds fragments of the matrices. For lane
// 4g + t:
// - C, 4 floats: columns 2t and 2t + 1 of row g, then of row g + 8;
// - A, 4 words of two halves: columns 2t and 2t + 1 of rows g and g + 8, then columns 2t + 8 and 2t + 9 of the same
//   rows;
// - B, 2 words: rows 2t and 2t + 1, then rows 2t + 8 and 2t + 9, of column g.
#pragma once

// Second argument of MR_KERNEL: the least number of blocks resident on a multiprocessor, which limits the registers
// that the compiler gives a thread.
#define MR_MIN_BLOCKS(count) , count

namespace mr {

// A byte address in shared memory.
using SmemAddress = u32;

extern __shared__ __align__(1024) unsigned char mr_smem[];

// Start of the dynamic shared memory of this block.
MR_DEVICE SmemAddress smem_base() { return static_cast<SmemAddress>(__cvta_generic_to_shared(mr_smem)); }

// Starts a copy of 16, 8 or 4 bytes to smem; out of bounds it writes zeros and reads nothing. The data is there after
// cp_async_wait; for other threads, after a barrier that follows it.
MR_DEVICE void cp_async_16(SmemAddress to, const void* from, bool in_bounds) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(in_bounds ? 16 : 0)
               : "memory");
}
MR_DEVICE void cp_async_8(SmemAddress to, const void* from, bool in_bounds) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(in_bounds ? 8 : 0) : "memory");
}
MR_DEVICE void cp_async_4(SmemAddress to, const void* from, bool in_bounds) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(in_bounds ? 4 : 0) : "memory");
}
// Closes the group of copies started since the last call.
MR_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the kPending youngest.
template <int kPending>
MR_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads four 8 x 8 matrices of halves. Lane n passes the address of row n % 8 of matrix n / 8. Lane 4g + t gets
// elements 2t and 2t + 1 of row g of each matrix; transposed, of column g.
MR_DEVICE void ldmatrix_x4(u32 (&to)[4], SmemAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
MR_DEVICE void ldmatrix_x4_trans(u32 (&to)[4], SmemAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
MR_DEVICE void store_smem_u32(SmemAddress to, u32 word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

// Transposes one 8 x 8 matrix of halves in registers: lane 4g + t passes elements 2t and 2t + 1 of row g and gets those
// of column g.
MR_DEVICE u32 movmatrix_trans(u32 fragment) {
  u32 other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(fragment));
  return other;
}

// The inverse of ldmatrix_x4: the same lanes, addresses and elements.
MR_DEVICE void stmatrix_x4(SmemAddress row, const u32 (&from)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  MR_UNROLL
  for (int n = 0; n < 4; ++n)
    store_smem_u32(__shfl_sync(0xffffffffu, row, n * 8 + threadIdx.x % 32 / 4) + threadIdx.x % 4 * 4, from[n]);
#endif
}
MR_DEVICE void stmatrix_x4_trans(SmemAddress row, const u32 (&from)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  const u32 others[4] = {movmatrix_trans(from[0]), movmatrix_trans(from[1]), movmatrix_trans(from[2]),
                         movmatrix_trans(from[3])};
  stmatrix_x4(row, others);
#endif
}
MR_DEVICE void load_smem_u32x4(u32 (&to)[4], SmemAddress from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
MR_DEVICE void store_smem_u32x4(SmemAddress to, const u32 (&from)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]),
               "r"(from[3])
               : "memory");
}
// Makes smem writes of a warp's threads visible to the whole warp.
MR_DEVICE void warp_barrier() { __syncwarp(); }
MR_DEVICE void load_smem_f32x4(float (&to)[4], SmemAddress from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}

MR_DEVICE float load_smem_f32(SmemAddress from) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
  return x;
}

MR_DEVICE u32 load_smem_u16(SmemAddress from) {
  u16 half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
  return half;
}

MR_DEVICE u32 load_smem_u32(SmemAddress from) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
MR_DEVICE void store_smem_f32x2(SmemAddress to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

// c += a · b
template <class T>
MR_DEVICE void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <>
MR_DEVICE void mma_m16n8k16<f16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
MR_DEVICE void mma_m16n8k16<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two floats to halves; the first is in the lower half of the word.
template <class T>
MR_DEVICE u32 pack_halves(float first, float second);
template <>
MR_DEVICE u32 pack_halves<f16>(float first, float second) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
template <>
MR_DEVICE u32 pack_halves<bf16>(float first, float second) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Relative error about 2^-22; 0 where the result would be denormal.
MR_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Tells the compiler x >= 0, so that it divides by shifting.
MR_DEVICE int assume_non_negative(int x) {
  __builtin_assume(x >= 0);
  return x;
}

// The word of the lane whose number differs in the bits of `mask`.
MR_DEVICE u32 shuffle_xor_u32(u32 word, int mask) { return __shfl_xor_sync(0xffffffffu, word, mask); }

MR_DEVICE long long bits_of(double x) { return __double_as_longlong(x); }

// 2 * bits + (x >= threshold), by the borrow of a subtraction.
MR_DEVICE u32 append_at_least_bit(u32 bits, u32 x, u32 threshold) {
  asm("{.reg .u32 rest, inverse; not.b32 inverse, %0; sub.cc.u32 rest, %1, %2; subc.u32 %0, %0, inverse;}"
      : "+r"(bits)
      : "r"(x), "r"(threshold));
  return bits;
}

// Bit n: the vote of lane n.
MR_DEVICE u32 ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }

// --- mbarriers, since Hopper ---

// An mbarrier is kMbarrierBytes of smem, aligned to them. It is in a phase, at first phase 0, until enough threads have
// arrived; then the next phase begins. Unlike at a barrier, those that arrive need not wait.

constexpr int kMbarrierBytes = 8;

// Called by one thread, before a barrier. `arrivals` end each phase.
MR_DEVICE void mbarrier_init(SmemAddress at, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
// What the thread did before is visible to the threads that wait for this phase.
MR_DEVICE void mbarrier_arrive(SmemAddress at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// The thread arrives when all copies that it has started are done. It has no chance to call fence_async_proxy for them:
// threads that wait for the phase do.
MR_DEVICE void cp_async_mbarrier_arrive(SmemAddress at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
// Waits until the phase of this parity has ended: the current one or, without waiting, the one before. So a wait for
// parity 1 passes a new mbarrier.
MR_DEVICE void mbarrier_wait(SmemAddress at, u32 parity) {
  asm volatile(
      "{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again;}" ::"r"(at),
      "r"(parity)
      : "memory");
}

// Changes the number of registers of each thread of a warpgroup; every warp of it calls it. Raising waits until other
// warpgroups of the block have given up enough.
template <int kRegisters>
MR_DEVICE void reduce_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
MR_DEVICE void raise_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- wgmma: four warps (a warpgroup) multiply together, since Hopper ---

// Every warp holds 16 of the 64 rows of C. All four read B from smem, and A from registers (RS) or smem (SS). The
// accumulators are valid after wgmma_wait and fence_operand; nothing may touch them before.
//
// Operands in smem use the 128-byte swizzle: lines of 64 halves (128 bytes), each 8 lines a block that starts at a
// multiple of 1024 bytes. The 16-byte chunk c of line r in a block is stored as chunk c ^ r.

constexpr SmemAddress kSwizzleBytes = 128;
MR_DEVICE SmemAddress swizzle(SmemAddress offset) { return offset ^ (offset >> 3 & 0x70); }

// Makes smem writes of this thread, and its copies that it waited for, visible to wgmma, after a barrier. Restricted to
// shared memory: for all memory, ptxas emits MEMBAR.ALL.GPU in place of MEMBAR.ALL.CTA.
MR_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

MR_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MR_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all groups but the kPending youngest.
template <int kPending>
MR_DEVICE void wgmma_wait_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
MR_DEVICE void wgmma_wait() { wgmma_wait_but<0>(); }

// Keeps the compiler from moving accesses to x across this point.
MR_DEVICE void fence_operand(float& x) { asm volatile("" : "+f"(x)::"memory"); }
MR_DEVICE void fence_operand(u32& x) { asm volatile("" : "+r"(x)::"memory"); }

// Matrix descriptor of a swizzled operand whose blocks are contiguous. Only the low word depends on the address, so
// advancing by a multiple of 16 bytes is one addition.
struct SmemDescriptor {
  u32 low;

  MR_DEVICE SmemDescriptor advanced(int bytes) const { return {low + static_cast<u32>(bytes / 16)}; }
  MR_DEVICE u64 bits() const { return static_cast<u64>(8 * kSwizzleBytes / 16 | 1u << 30) << 32 | low; }
};
// `run_bytes`: from 64 columns to the next, if the operand has more than 64 and each of its lines has one k (the
// leading dimension's byte offset). The hardware ignores it otherwise.
MR_DEVICE SmemDescriptor make_descriptor(SmemAddress address, int run_bytes = 16) {
  return {address >> 4 | static_cast<u32>(run_bytes / 16) << 16};
}

// A value that is equal in all threads of a warp, in a form that tells the compiler so.
MR_DEVICE int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// c = a · b or c += a · b, 128, 64 or 32 columns wide, 16 deep; c starts at accumulator kFirstN. kTransA and kTransB
// are the instruction's: 0 if the lines of an operand run along k (a line is a row of A, or a column of B), 1 if each
// line has one k.
#define MR_ACC_4(n) "+f"(c[kFirstN + n][0]), "+f"(c[kFirstN + n][1]), "+f"(c[kFirstN + n][2]), "+f"(c[kFirstN + n][3])
#define MR_ACC_32 MR_ACC_4(0), MR_ACC_4(1), MR_ACC_4(2), MR_ACC_4(3)
#define MR_ACC_64 MR_ACC_32, MR_ACC_4(4), MR_ACC_4(5), MR_ACC_4(6), MR_ACC_4(7)
#define MR_ACC_128                                                                                           \
  MR_ACC_64, MR_ACC_4(8), MR_ACC_4(9), MR_ACC_4(10), MR_ACC_4(11), MR_ACC_4(12), MR_ACC_4(13), MR_ACC_4(14), \
      MR_ACC_4(15)
#define MR_ACC_REGISTERS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MR_ACC_REGISTERS_64 \
  MR_ACC_REGISTERS_32       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MR_ACC_REGISTERS_128                                                                                  \
  MR_ACC_REGISTERS_64                                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52" \
  ", %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// `accumulate_operand`: number of the asm operand that says whether to accumulate. The last arguments are A's asm
// operands.
#define MR_WGMMA(columns, accumulate_operand, type, operands, ...)                                                    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" accumulate_operand ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
               "k16.f32." type "." type " {" MR_ACC_REGISTERS_##columns "}, " operands ";}"                           \
               : MR_ACC_##columns                                                                                     \
               : __VA_ARGS__, "l"(b), "r"(accumulate)                                                                 \
               : "memory")
#define MR_A_FRAGMENT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define MR_WGMMA_RS_32(type, trans_b) \
  MR_WGMMA(32, "21", type, "{%16, %17, %18, %19}, %20, p, 1, 1, " trans_b, MR_A_FRAGMENT)
#define MR_WGMMA_RS_64(type, trans_b) \
  MR_WGMMA(64, "37", type, "{%32, %33, %34, %35}, %36, p, 1, 1, " trans_b, MR_A_FRAGMENT)
#define MR_WGMMA_RS_128(type, trans_b) \
  MR_WGMMA(128, "69", type, "{%64, %65, %66, %67}, %68, p, 1, 1, " trans_b, MR_A_FRAGMENT)
#define MR_WGMMA_SS_32(type, trans_a, trans_b) \
  MR_WGMMA(32, "18", type, "%16, %17, p, 1, 1, " trans_a ", " trans_b, "l"(a))
#define MR_WGMMA_SS_64(type, trans_a, trans_b) \
  MR_WGMMA(64, "34", type, "%32, %33, p, 1, 1, " trans_a ", " trans_b, "l"(a))
#define MR_WGMMA_SS_128(type, trans_a, trans_b) \
  MR_WGMMA(128, "66", type, "%64, %65, p, 1, 1, " trans_a ", " trans_b, "l"(a))

#define MR_WGMMA_RS(instruction)                                 \
  if constexpr (kIsF16<T> && kTransB) instruction("f16", "1");   \
  if constexpr (kIsF16<T> && !kTransB) instruction("f16", "0");  \
  if constexpr (!kIsF16<T> && kTransB) instruction("bf16", "1"); \
  if constexpr (!kIsF16<T> && !kTransB) instruction("bf16", "0")
#define MR_WGMMA_SS_OF_TYPE(instruction, of_type, type)                      \
  if constexpr (of_type && kTransA && kTransB) instruction(type, "1", "1");  \
  if constexpr (of_type && kTransA && !kTransB) instruction(type, "1", "0"); \
  if constexpr (of_type && !kTransA && kTransB) instruction(type, "0", "1"); \
  if constexpr (of_type && !kTransA && !kTransB) instruction(type, "0", "0")
#define MR_WGMMA_SS(instruction)                      \
  MR_WGMMA_SS_OF_TYPE(instruction, kIsF16<T>, "f16"); \
  MR_WGMMA_SS_OF_TYPE(instruction, !kIsF16<T>, "bf16")

template <class T>
constexpr bool kIsF16 = false;
template <>
constexpr bool kIsF16<f16> = true;

template <class T, int kColumns, bool kTransB, int kFirstN, int kCount>
MR_DEVICE void wgmma_rs(float (&c)[kCount][4], const u32 (&a)[4], SmemDescriptor b_descriptor, int accumulate) {
  static_assert(kColumns == 32 || kColumns == 64 || kColumns == 128);
  const u64 b = b_descriptor.bits();
  if constexpr (kColumns == 128) {
    MR_WGMMA_RS(MR_WGMMA_RS_128);
  } else if constexpr (kColumns == 64) {
    MR_WGMMA_RS(MR_WGMMA_RS_64);
  } else {
    MR_WGMMA_RS(MR_WGMMA_RS_32);
  }
}

// A and B in smem; `a_descriptor` points to the first of the warpgroup's 64 rows.
template <class T, int kColumns, bool kTransA, bool kTransB, int kFirstN, int kCount>
MR_DEVICE void wgmma_ss(float (&c)[kCount][4], SmemDescriptor a_descriptor, SmemDescriptor b_descriptor,
                        int accumulate) {
  static_assert(kColumns == 32 || kColumns == 64 || kColumns == 128);
  const u64 a = a_descriptor.bits();
  const u64 b = b_descriptor.bits();
  if constexpr (kColumns == 128) {
    MR_WGMMA_SS(MR_WGMMA_SS_128);
  } else if constexpr (kColumns == 64) {
    MR_WGMMA_SS(MR_WGMMA_SS_64);
  } else {
    MR_WGMMA_SS(MR_WGMMA_SS_32);
  }
}

}  // namespace mr
