// What generated CUDA kernels take of the hardware, and nothing else: threads, barriers, shuffles, wide accesses, half
// precisions. It stands before cuda_prelude.h; the tests have another one, which runs the same kernels on a CPU.
#pragma once

#define MR_DEVICE __device__ __forceinline__
#define MR_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define MR_PARAMETER const __grid_constant__
#define MR_SHARED __shared__
#define MR_UNROLL _Pragma("unroll")
#define MR_NO_UNROLL _Pragma("unroll 1")
#define MR_UNROLL_SOME _Pragma("unroll 16")  // of a loop that may be long

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

// Every kernel's first call, before it touches memory: since Hopper it may have been started while the kernel before
// still runs. Waits until that one is done, and all it wrote is there; then the next one may be started so. Not sooner:
// two would then be ahead.
MR_DEVICE void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

MR_DEVICE void lower_to(u64* to, u64 x) { atomicMin(to, x); }
MR_DEVICE void barrier() { __syncthreads(); }
// For some whole warps of a block, which all have the same number.
MR_DEVICE void barrier_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
MR_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
MR_DEVICE double shuffle_xor(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
MR_DEVICE float infinity() { return __int_as_float(0x7f800000); }
MR_DEVICE u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }

// Half precisions are stored, never computed with.
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

// A NaN stays one. One instruction, where a comparison and a choice take three.
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
// Right to about 2^-22 and 2^-23·|x|, and 0 where float would be denormal: more than a float16 can tell.
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
MR_DEVICE float erf_of(float x) { return erff(x); }
MR_DEVICE double erf_of(double x) { return ::erf(x); }
MR_DEVICE float power_of(float x, float y) { return powf(x, y); }
MR_DEVICE double power_of(double x, double y) { return ::pow(x, y); }
MR_DEVICE float root_of(float x) { return sqrtf(x); }
MR_DEVICE double root_of(double x) { return ::sqrt(x); }

}  // namespace mr
