// Emulates codegen/prelude/cuda_hardware.h on one CPU thread; precedes cuda_prelude.h. Threads of a block are fibers
// that take turns at barriers and shuffles. Blocks run one after the other, so a variable in shared memory is simply
// static. Used by tests/codegen/cuda_kernel_test.cpp and by the emulated GPU.
//
// It is compiled with every kernel, so it includes little: <math.h> alone takes longer than most kernels. Compile with
// -U_FORTIFY_SOURCE: a fortified longjmp, the default of some compilers, rejects jumps to another stack.
#pragma once

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if __USE_FORTIFY_LEVEL > 0
#error "emulated kernels are compiled with -U_FORTIFY_SOURCE"
#endif

#define MR_DEVICE inline
#define MR_KERNEL(threads) static void
#define MR_PARAMETER const
#define MR_SHARED static
#define MR_UNROLL
#define MR_NO_UNROLL
#define MR_UNROLL_SOME

namespace mr {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

struct alignas(16) Chunk16 {
  u32 words[4];
};
struct alignas(8) Chunk8 {
  u32 words[2];
};

constexpr int kMaxThreads = 1024;  // of a block

// Started by makecontext, then left and resumed by longjmp, which needs no system call, unlike swapcontext.
struct Fiber {
  ucontext_t start;
  jmp_buf at;
  char* stack = nullptr;
  bool done = false;
};

struct Machine {
  int thread = 0;
  int block = 0;
  int blocks = 0;
  u32 shared_bytes = 0;  // as requested by the launch
  jmp_buf scheduler;
  Fiber* fibers = nullptr;    // kMaxThreads
  u64 ran = 0;                // blocks so far, with this one
  u32 barriers[kMaxThreads];  // that a thread has passed
  double exchanged[kMaxThreads];
  void (*body)(const void*) = nullptr;
  const void* argument = nullptr;

  ~Machine() {
    for (int t = 0; fibers != nullptr && t < kMaxThreads; ++t) free(fibers[t].stack);
    delete[] fibers;
  }
};

inline Machine& machine() {
  static Machine one;
  return one;
}

inline int thread_number() { return machine().thread; }
inline int block_number() { return machine().block; }
inline int grid_size() { return machine().blocks; }
inline void begin() {}
inline void lower_to(u64* to, u64 x) { *to = x < *to ? x : *to; }

__attribute__((noinline)) inline void leave(Fiber& fiber) {
  if (_setjmp(fiber.at) == 0) _longjmp(machine().scheduler, 1);
}

// Lets the other threads run until they get here, too.
inline void wait_for_others() {
  Machine& m = machine();
  const int own = m.thread;
  leave(m.fibers[own]);
  m.thread = own;
}

inline void barrier() {
  wait_for_others();
  ++machine().barriers[machine().thread];
}

// All threads of a block pass the same number of them.
inline void named_barrier(int, int) { barrier(); }

template <class F>
inline F shuffle_xor(F x, int mask) {
  Machine& m = machine();
  m.exchanged[m.thread] = static_cast<double>(x);
  wait_for_others();
  const F got = static_cast<F>(m.exchanged[m.thread ^ mask]);
  wait_for_others();
  return got;
}

inline float infinity() { return __builtin_inff(); }
inline u32 high_product(u32 a, u32 b) { return static_cast<u32>((static_cast<u64>(a) * b) >> 32); }

inline void fiber_body() {
  for (;;) {
    Machine& m = machine();
    m.body(m.argument);
    Fiber& own = m.fibers[m.thread];
    own.done = true;
    leave(own);
  }
}

__attribute__((noinline)) inline void resume(Fiber& fiber) {
  constexpr size_t kStack = 128 * 1024;
  if (_setjmp(machine().scheduler) != 0) return;
  if (fiber.stack != nullptr) _longjmp(fiber.at, 1);
  fiber.stack = static_cast<char*>(malloc(kStack));
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack;
  fiber.start.uc_stack.ss_size = kStack;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, fiber_body, 0);
  setcontext(&fiber.start);
}

// Runs every thread up to its next barrier, in turn, until all are done. A barrier that only some threads reach is a
// bug of the kernel.
inline void run_block(int threads) {
  Machine& m = machine();
  if (m.fibers == nullptr) m.fibers = new Fiber[kMaxThreads];
  memset(m.exchanged, 0, sizeof(m.exchanged));
  memset(m.barriers, 0, sizeof(m.barriers));
  ++m.ran;
  for (int t = 0; t < threads; ++t) m.fibers[t].done = false;
  for (int done = 0; done < threads;) {
    done = 0;
    for (int t = 0; t < threads; ++t) {
      if (!m.fibers[t].done) {
        m.thread = t;
        resume(m.fibers[t]);
      }
      done += m.fibers[t].done ? 1 : 0;
    }
    if (done != 0 && done != threads) {
      fprintf(stderr, "not all threads of a block reach a barrier\n");
      abort();
    }
  }
}

struct HostArguments {
  void* const* tensors;
  const double* values;
  const u32* subsequences;
  u64 seed;
  u32 step;
  char* scratch;
};

// Runs the blocks of a grid in order. `together`: threads of a block wait for each other.
template <class A>
inline void run_grid(void (*kernel)(A), const A& arguments, long blocks, int threads, bool together) {
  static void (*called)(A);
  called = kernel;
  Machine& m = machine();
  m.body = [](const void* a) { called(*static_cast<const A*>(a)); };
  m.argument = &arguments;
  m.blocks = static_cast<int>(blocks);
  for (long block = 0; block < blocks; ++block) {
    m.block = static_cast<int>(block);
    if (together) {
      run_block(threads);
      continue;
    }
    for (m.thread = 0; m.thread < threads; ++m.thread) m.body(m.argument);
  }
}

template <class A>
inline void launch(void (*kernel)(A), const HostArguments* host, long blocks, int threads, bool together,
                   long shared_bytes = 0) {
  machine().shared_bytes = static_cast<u32>(shared_bytes);
  A arguments{};
  struct {
    u64 seed;
    u32 step;
    u32 unused;
  } const state{host->seed, host->step, 0};
  for (size_t k = 0; k < sizeof(arguments.tensors) / sizeof(void*); ++k) arguments.tensors[k] = host->tensors[k];
  for (size_t k = 0; k < sizeof(arguments.values) / sizeof(double); ++k) arguments.values[k] = host->values[k];
  for (size_t k = 0; k < sizeof(arguments.subsequences) / sizeof(u32); ++k)
    arguments.subsequences[k] = host->subsequences == nullptr ? 0 : host->subsequences[k];
  arguments.state = reinterpret_cast<decltype(arguments.state)>(&state);
  arguments.scratch = host->scratch;
  run_grid(kernel, arguments, blocks, threads, together);
}

// The same with the kernel's single parameter, as a driver gets it.
template <class A>
constexpr size_t parameter_bytes(void (*)(A)) {
  return sizeof(A);
}
template <class A>
inline void launch(void (*kernel)(A), const void* parameter, long blocks, int threads, bool together,
                   long shared_bytes = 0) {
  machine().shared_bytes = static_cast<u32>(shared_bytes);
  A arguments;
  memcpy(&arguments, parameter, sizeof(arguments));
  run_grid(kernel, arguments, blocks, threads, together);
}

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

#ifdef __aarch64__
using HostHalf = __fp16;
#else
using HostHalf = _Float16;
#endif

inline float widened(f16 x) {
  HostHalf half;
  memcpy(&half, &x, 2);
  return static_cast<float>(half);
}
inline void narrow(float x, f16& y) {
  const HostHalf half = static_cast<HostHalf>(x);
  memcpy(&y, &half, 2);
}
inline float widened(bf16 x) {
  const u32 bits = static_cast<u32>(x.bits) << 16;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}
inline void narrow(float x, bf16& y) {
  u32 bits;
  memcpy(&bits, &x, 4);
  if (x != x) {
    y.bits = 0x7fff;
    return;
  }
  y.bits = static_cast<u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class F>
inline F larger_of(F a, F b) {
  return a > b || a != a ? a : b;
}
template <class F>
inline F smaller_of(F a, F b) {
  return a < b || a != a ? a : b;
}
// An exponential as inexact as the hardware's.
inline float brief_exp_of(float x) {
  const float y = __builtin_exp2f(x * 1.44269504088896341f) * (1 + 0x1p-23f);
  return y < 0x1p-126f ? 0 : y;
}
inline float exp_of(float x) { return __builtin_expf(x); }
inline double exp_of(double x) { return __builtin_exp(x); }
inline float log_of(float x) { return __builtin_logf(x); }
inline double log_of(double x) { return __builtin_log(x); }
inline float tanh_of(float x) { return __builtin_tanhf(x); }
inline double tanh_of(double x) { return __builtin_tanh(x); }
inline float sin_of(float x) { return __builtin_sinf(x); }
inline double sin_of(double x) { return __builtin_sin(x); }
inline float cos_of(float x) { return __builtin_cosf(x); }
inline double cos_of(double x) { return __builtin_cos(x); }
inline float log1p_of(float x) { return __builtin_log1pf(x); }
inline double log1p_of(double x) { return __builtin_log1p(x); }
inline float expm1_of(float x) { return __builtin_expm1f(x); }
inline double expm1_of(double x) { return __builtin_expm1(x); }
inline float erf_of(float x) { return __builtin_erff(x); }
inline double erf_of(double x) { return __builtin_erf(x); }
inline float power_of(float x, float y) { return __builtin_powf(x, y); }
inline double power_of(double x, double y) { return __builtin_pow(x, y); }
inline float root_of(float x) { return __builtin_sqrtf(x); }
inline double root_of(double x) { return __builtin_sqrt(x); }

}  // namespace mr
