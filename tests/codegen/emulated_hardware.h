// Emulates codegen/prelude/cuda_hardware.h on one CPU thread; precedes cuda_prelude.h. Threads of a block are fibers
// that take turns where they wait for each other. Blocks run one after the other, so a variable in shared memory is
// simply static. Used by tests/codegen/cuda_kernel_test.cpp and by the emulated GPU.
// Test: tests/codegen/warp_specialization_test.cpp
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
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kNamedBarriers = 16;

// Threads wait until enough of them have arrived.
struct Meeting {
  u32 generation = 0;  // completed meetings
  int arrived = 0;
  int expected = 0;
  u32 warps = 0;  // that have arrived
};

// A vector clock. Each warp counts its own releases. Its clock has, for every warp, the count up to which everything
// happened before.
struct Clock {
  u32 releases[kMaxWarps];
};

// Started by makecontext, then left and resumed by longjmp, which needs no system call, unlike swapcontext.
struct Fiber {
  ucontext_t start;
  jmp_buf at;
  char* stack = nullptr;
  bool done = false;
  // While it waits: the number whose change it waits for. `what` and `which` describe it in messages.
  const u32* awaited = nullptr;
  u32 seen = 0;
  const char* what = nullptr;
  u32 which = 0;
};

struct Machine {
  int thread = 0;
  int block = 0;
  int blocks = 0;
  int threads = 0;  // of a block
  int warps = 0;
  u32 shared_bytes = 0;  // as requested by the launch
  jmp_buf scheduler;
  Fiber* fibers = nullptr;  // kMaxThreads
  u64 ran = 0;              // blocks so far, with this one
  Meeting own_warp[kMaxWarps];
  Meeting barriers[kNamedBarriers];
  Clock clocks[kMaxWarps];
  u32 fences[kMaxThreads];           // fence_async_proxy, by each thread
  u32 released_fences[kMaxThreads];  // those before its last release
  Clock fenced_clocks[kMaxThreads];  // of its warp, at its last fence
  u64 fenced_blocks[kMaxThreads];    // the block of that fence
  double exchanged[2][kMaxThreads];
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

// Lets other threads run until the number has changed.
inline void wait_for_change(const u32& number, const char* what, u32 which) {
  Machine& m = machine();
  Fiber& own = m.fibers[m.thread];
  own.awaited = &number;
  own.seen = number;
  own.what = what;
  own.which = which;
  leave(own);
  own.awaited = nullptr;
}

// Waits for the other threads of the warp. Returns how often the warp had met before: a number that all threads of the
// warp agree on.
inline u32 meet_warp() {
  Machine& m = machine();
  const int warp = m.thread / 32;
  const int lanes = m.threads - warp * 32 < 32 ? m.threads - warp * 32 : 32;
  Meeting& meeting = m.own_warp[warp];
  const u32 generation = meeting.generation;
  if (++meeting.arrived == lanes) {
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    wait_for_change(meeting.generation, "warp", static_cast<u32>(warp));
  }
  return generation;
}

// Everything before `from` happened before `to`.
inline void join(Clock& to, const Clock& from) {
  const int warps = machine().warps;
  for (int w = 0; w < warps; ++w)
    to.releases[w] = from.releases[w] > to.releases[w] ? from.releases[w] : to.releases[w];
}

// Orders everything that these warps did before everything that they do from now on.
inline void order_warps(u32 warps) {
  Machine& m = machine();
  Clock all{};
  for (int w = 0; w < m.warps; ++w)
    if ((warps >> w & 1) != 0) join(all, m.clocks[w]);
  for (int w = 0; w < m.warps; ++w) {
    if ((warps >> w & 1) == 0) continue;
    join(m.clocks[w], all);
    ++m.clocks[w].releases[w];
  }
}

// A release: fences of the thread before it hold for threads that see it.
inline void release_fences() {
  Machine& m = machine();
  m.released_fences[m.thread] = m.fences[m.thread];
}

// Whether it completed the barrier.
inline bool arrive_at(int number, int threads) {
  Machine& m = machine();
  Meeting& meeting = m.barriers[number];
  if (number < 0 || number >= kNamedBarriers || (meeting.arrived != 0 && meeting.expected != threads)) {
    fprintf(stderr, "barrier %d: no such barrier, or threads disagree on how many it is for\n", number);
    abort();
  }
  release_fences();
  meeting.expected = threads;
  meeting.warps |= 1u << m.thread / 32;
  if (++meeting.arrived < threads) return false;
  order_warps(meeting.warps);
  meeting.arrived = 0;
  meeting.warps = 0;
  ++meeting.generation;
  return true;
}
inline void named_barrier_arrive(int number, int threads) { arrive_at(number, threads); }
inline void named_barrier(int number, int threads) {
  if (!arrive_at(number, threads))
    wait_for_change(machine().barriers[number].generation, "barrier", static_cast<u32>(number));
}
// All threads of the block pass it, also if some end early: a barrier that only some reach is a bug of the kernel.
inline void barrier() { named_barrier(0, machine().threads); }

// The buffers alternate so that one meeting is enough.
template <class F>
inline F shuffle_xor(F x, int mask) {
  Machine& m = machine();
  const int own = m.thread;
  double* const all = m.exchanged[m.own_warp[own / 32].generation % 2];
  all[own] = static_cast<double>(x);
  meet_warp();
  return static_cast<F>(all[own ^ mask]);
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

// Whether a thread can run: it does not wait, or the number that it waits for has changed.
inline bool can_run(const Fiber& fiber) {
  return !fiber.done && (fiber.awaited == nullptr || *fiber.awaited != fiber.seen);
}

// Runs the threads of a warp in turn until all are done or wait for other warps. False if none could run.
inline bool run_warp(int warp) {
  Machine& m = machine();
  const int end = (warp + 1) * 32 < m.threads ? (warp + 1) * 32 : m.threads;
  bool ran = false;
  for (bool again = true; again;) {
    again = false;
    for (int t = warp * 32; t < end; ++t) {
      if (!can_run(m.fibers[t])) continue;
      m.thread = t;
      resume(m.fibers[t]);
      again = ran = true;
    }
  }
  return ran;
}

// One entry for consecutive threads that wait for the same.
inline void report_deadlock() {
  const Machine& m = machine();
  fprintf(stderr, "deadlock: no thread of block %d can continue", m.block);
  const Fiber* last = nullptr;
  for (int t = 0; t < m.threads; ++t) {
    const Fiber& fiber = m.fibers[t];
    if (last != nullptr && last->done == fiber.done && (fiber.done || last->awaited == fiber.awaited)) continue;
    last = &fiber;
    if (fiber.done)
      fprintf(stderr, "; thread %d has ended", t);
    else
      fprintf(stderr, "; thread %d waits for %s %u", t, fiber.what, fiber.which);
  }
  fprintf(stderr, "\n");
  abort();
}

// Everything that earlier blocks did happened before this block.
inline void start_clocks() {
  Machine& m = machine();
  u32 latest = 0;
  for (int w = 0; w < kMaxWarps; ++w) latest = m.clocks[w].releases[w] > latest ? m.clocks[w].releases[w] : latest;
  for (int w = 0; w < m.warps; ++w) {
    for (int other = 0; other < kMaxWarps; ++other) m.clocks[w].releases[other] = latest;
    ++m.clocks[w].releases[w];
  }
}

inline void run_block() {
  Machine& m = machine();
  if (m.fibers == nullptr) m.fibers = new Fiber[kMaxThreads];
  ++m.ran;
  start_clocks();
  for (int t = 0; t < m.threads; ++t) m.fibers[t].done = false;
  for (bool ran = true; ran;) {
    ran = false;
    for (int w = 0; w < m.warps; ++w) ran = run_warp(w) || ran;
  }
  for (int t = 0; t < m.threads; ++t)
    if (!m.fibers[t].done) report_deadlock();
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
  m.threads = threads;
  m.warps = (threads + 31) / 32;
  for (long block = 0; block < blocks; ++block) {
    m.block = static_cast<int>(block);
    if (together) {
      run_block();
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
