// The hardware of generated CUDA kernels, played by one thread of a CPU: in front of cuda_prelude.h it takes the place
// of codegen/prelude/cuda_hardware.h. Threads of a block are fibers that take turns at barriers and shuffles; blocks
// run one behind the other, so a variable that a block shares is simply a static one.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#define MR_DEVICE inline
#define MR_KERNEL(threads) static void
#define MR_PARAMETER const
#define MR_SHARED static
#define MR_UNROLL
#define MR_NO_UNROLL

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

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
};

struct Machine {
  int thread = 0;
  int block = 0;
  int blocks = 0;
  ucontext_t scheduler;
  std::vector<Fiber> fibers;
  std::vector<double> exchanged;
  void (*body)(const void*) = nullptr;
  const void* argument = nullptr;
};

inline Machine& machine() {
  static Machine one;
  return one;
}

inline int thread_number() { return machine().thread; }
inline int block_number() { return machine().block; }
inline int grid_size() { return machine().blocks; }
inline void lower_to(u64* to, u64 x) { *to = x < *to ? x : *to; }

// The other threads go on until they are here too.
inline void barrier() {
  Machine& m = machine();
  const int own = m.thread;
  swapcontext(&m.fibers[static_cast<size_t>(own)].context, &m.scheduler);
  m.thread = own;
}

template <class F>
inline F shuffle_xor(F x, int mask) {
  Machine& m = machine();
  m.exchanged[static_cast<size_t>(m.thread)] = static_cast<double>(x);
  barrier();
  const F got = static_cast<F>(m.exchanged[static_cast<size_t>(m.thread ^ mask)]);
  barrier();
  return got;
}

inline float infinity() { return HUGE_VALF; }
inline u32 high_product(u32 a, u32 b) { return static_cast<u32>((static_cast<u64>(a) * b) >> 32); }

inline void fiber_body() {
  Machine& m = machine();
  m.body(m.argument);
  m.fibers[static_cast<size_t>(m.thread)].done = true;
  swapcontext(&m.fibers[static_cast<size_t>(m.thread)].context, &m.scheduler);
}

// Every thread up to its next barrier, in turn, until all are done. A barrier that some threads pass and others do not
// is a defect of the kernel.
inline void run_block(int threads) {
  constexpr size_t kStack = 128 * 1024;
  Machine& m = machine();
  if (m.fibers.size() < static_cast<size_t>(threads)) m.fibers.resize(static_cast<size_t>(threads));
  m.exchanged.assign(static_cast<size_t>(threads), 0.0);
  for (int t = 0; t < threads; ++t) {
    Fiber& fiber = m.fibers[static_cast<size_t>(t)];
    fiber.done = false;
    fiber.stack.resize(kStack);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_body, 0);
  }
  for (int done = 0; done < threads;) {
    done = 0;
    for (int t = 0; t < threads; ++t) {
      Fiber& fiber = m.fibers[static_cast<size_t>(t)];
      if (!fiber.done) {
        m.thread = t;
        swapcontext(&m.scheduler, &fiber.context);
      }
      done += fiber.done ? 1 : 0;
    }
    if (done != 0 && done != threads) {
      std::fprintf(stderr, "a barrier that not all threads reach\n");
      std::abort();
    }
  }
}

struct HostArguments {
  void* const* tensors;
  const double* values;
  const u32* streams;
  u64 seed;
  u32 step;
  char* scratch;
};

template <class A>
inline void launch(void (*kernel)(A), const HostArguments* host, long blocks, int threads, bool together) {
  using Plain = std::remove_cv_t<A>;
  static void (*called)(A);
  called = kernel;
  Plain arguments{};
  struct {
    u64 seed;
    u32 step;
    u32 unused;
  } const state{host->seed, host->step, 0};
  for (size_t k = 0; k < sizeof(arguments.tensors) / sizeof(void*); ++k) arguments.tensors[k] = host->tensors[k];
  for (size_t k = 0; k < sizeof(arguments.values) / sizeof(double); ++k) arguments.values[k] = host->values[k];
  for (size_t k = 0; k < sizeof(arguments.streams) / sizeof(u32); ++k)
    arguments.streams[k] = host->streams == nullptr ? 0 : host->streams[k];
  arguments.state = reinterpret_cast<decltype(arguments.state)>(&state);
  arguments.scratch = host->scratch;
  Machine& m = machine();
  m.body = [](const void* a) { called(*static_cast<const Plain*>(a)); };
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
  std::memcpy(&half, &x, 2);
  return static_cast<float>(half);
}
inline void narrow(float x, f16& y) {
  const HostHalf half = static_cast<HostHalf>(x);
  std::memcpy(&y, &half, 2);
}
inline float widened(bf16 x) {
  const u32 bits = static_cast<u32>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
inline void narrow(float x, bf16& y) {
  u32 bits;
  std::memcpy(&bits, &x, 4);
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
template <class F>
inline F exp_of(F x) {
  return std::exp(x);
}
// As inexact as the hardware's.
inline float brief_exp_of(float x) {
  const float y = std::exp2(x * 1.44269504088896341f) * (1 + 0x1p-23f);
  return y < 0x1p-126f ? 0 : y;
}
template <class F>
inline F log_of(F x) {
  return std::log(x);
}
template <class F>
inline F tanh_of(F x) {
  return std::tanh(x);
}
template <class F>
inline F erf_of(F x) {
  return std::erf(x);
}
template <class F>
inline F power_of(F x, F y) {
  return std::pow(x, y);
}
template <class F>
inline F root_of(F x) {
  return std::sqrt(x);
}

}  // namespace mr
