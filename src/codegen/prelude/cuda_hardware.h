// Hardware operations that generated CUDA kernels use, and nothing else: threads, barriers, shuffles, wide accesses,
// half-precision types. The text precedes cuda_prelude.h in a kernel's source; tests/codegen/emulated_hardware.h
// replaces it to run the same kernels on a CPU.
// Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#define MR_DEVICE __device__ __forceinline__
#define MR_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define MR_PARAMETER const __grid_constant__
#define MR_SHARED __shared__
#define MR_UNROLL _Pragma("unroll")
#define MR_NO_UNROLL _Pragma("unroll 1")
#define MR_UNROLL_SOME _Pragma("unroll 16")  // for loops that may be long

namespace mr {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

using Chunk16 = uint4;
using Chunk8 = uint2;

MR_DEVICE int thread_number() { return static_cast<int>(threadIdx.x); }
MR_DEVICE int block_number() { return static_cast<int>(blockIdx.x); }
MR_DEVICE int grid_size() { return static_cast<int>(gridDim.x); }

// The first call of every kernel, before it touches memory. Since Hopper, a kernel may start while the previous one
// still runs (programmatic dependent launch). Waits until that one is done and its writes are visible, then allows the
// next kernel to start. If it allowed that sooner, two kernels could run ahead.
MR_DEVICE void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

MR_DEVICE void lower_to(u64* to, u64 x) { atomicMin(to, x); }
MR_DEVICE void barrier() { __syncthreads(); }
// Barrier number `number`, for `threads` threads: some whole warps of the block.
MR_DEVICE void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Arrives at a named barrier without waiting; `threads` counts those that arrive and those that wait.
MR_DEVICE void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
MR_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
MR_DEVICE double shuffle_xor(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
MR_DEVICE float infinity() { return __int_as_float(0x7f800000); }
MR_DEVICE u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }

// Half-precision types are for storage only.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

MR_DEVICE float widened(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
MR_DEVICE float widened(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
MR_DEVICE void narrow(float x, f16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
MR_DEVICE void narrow(float x, bf16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

// Propagates NaN. One instruction; a comparison and a select take three.
MR_DEVICE float larger_of(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
MR_DEVICE double larger_of(double a, double b) { return a > b || a != a ? a : b; }
MR_DEVICE float smaller_of(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
MR_DEVICE double smaller_of(double a, double b) { return a < b || a != a ? a : b; }

MR_DEVICE float exp_of(float x) { return expf(x); }
// Relative error about 2^-22 + 2^-23·|x|, finer than float16; 0 where the result would be denormal.
MR_DEVICE float brief_exp_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
  return y;
}
MR_DEVICE double exp_of(double x) { return ::exp(x); }
MR_DEVICE float log_of(float x) { return logf(x); }
MR_DEVICE double log_of(double x) { return ::log(x); }
MR_DEVICE float tanh_of(float x) { return tanhf(x); }
MR_DEVICE double tanh_of(double x) { return ::tanh(x); }
MR_DEVICE float sin_of(float x) { return sinf(x); }
MR_DEVICE double sin_of(double x) { return ::sin(x); }
MR_DEVICE float cos_of(float x) { return cosf(x); }
MR_DEVICE double cos_of(double x) { return ::cos(x); }
MR_DEVICE float log1p_of(float x) { return log1pf(x); }
MR_DEVICE double log1p_of(double x) { return ::log1p(x); }
MR_DEVICE float expm1_of(float x) { return expm1f(x); }
MR_DEVICE double expm1_of(double x) { return ::expm1(x); }
MR_DEVICE float erf_of(float x) { return erff(x); }
MR_DEVICE double erf_of(double x) { return ::erf(x); }
MR_DEVICE float power_of(float x, float y) { return powf(x, y); }
MR_DEVICE double power_of(double x, double y) { return ::pow(x, y); }
MR_DEVICE float root_of(float x) { return sqrtf(x); }
MR_DEVICE double root_of(double x) { return ::sqrt(x); }

}  // namespace mr
