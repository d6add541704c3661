#include "device/cpu/ceilings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr int kSamples = 24;             // the fastest counts
constexpr size_t kAccumulators = 12;     // hide the latency of an addition
constexpr size_t kCachedBytes = 12'288;  // in the fastest cache of every processor
constexpr int64_t kMostMemory = 128 << 20;
constexpr double kLoadsAndStores = 2;  // stores run in parallel with loads, at most as fast

// GCC must make these loops as fast as kernels in any build.
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2")
#endif

// Keeps the compiler from removing what computes the value.
template <class Value>
void use(Value& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

template <class Vector>
struct Loops {
  static constexpr size_t kLanes = sizeof(Vector) / sizeof(float);

  // Multiplies and adds. Returns flop.
  [[gnu::always_inline]] static inline double multiply_and_add(Vector* sums, int rounds) {
    Vector local[kAccumulators];  // NOLINT(modernize-avoid-c-arrays): std::array would keep it in memory
    for (size_t k = 0; k < kAccumulators; ++k) local[k] = sums[k];
    const Vector factor = local[0] * 0.5F;
    for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
      for (Vector& sum : local) sum = sum * factor + factor;
    }
    for (size_t k = 0; k < kAccumulators; ++k) sums[k] = local[k];
    return 2.0 * kLanes * kAccumulators * rounds;
  }

  // Reads a buffer again and again. Returns bytes.
  [[gnu::always_inline]] static inline double load(const Vector* from, size_t count, Vector* sums, int rounds) {
    Vector local[kAccumulators] = {};  // NOLINT(modernize-avoid-c-arrays): as above
    for (int round = 0; round < rounds; ++round) {
      for (size_t at = 0; at + kAccumulators <= count; at += kAccumulators) {
#pragma GCC unroll 12
        for (size_t k = 0; k < kAccumulators; ++k) local[k] += from[at + k];
      }
      asm volatile("" : : : "memory");
    }
    for (size_t k = 0; k < kAccumulators; ++k) sums[k] = local[k];
    const size_t vectors = count - count % kAccumulators;
    return static_cast<double>(vectors * sizeof(Vector)) * rounds;
  }
};

using Vector16 = float __attribute__((vector_size(16)));

double multiply_and_add_16(void* sums, int rounds) {
  return Loops<Vector16>::multiply_and_add(static_cast<Vector16*>(sums), rounds);
}
double load_16(const void* from, size_t bytes, void* sums, int rounds) {
  return Loops<Vector16>::load(static_cast<const Vector16*>(from), bytes / sizeof(Vector16),
                               static_cast<Vector16*>(sums), rounds);
}

#ifdef __x86_64__
using Vector32 = float __attribute__((vector_size(32)));
using Vector64 = float __attribute__((vector_size(64)));

[[gnu::target("avx2,fma")]] double multiply_and_add_32(void* sums, int rounds) {
  return Loops<Vector32>::multiply_and_add(static_cast<Vector32*>(sums), rounds);
}
[[gnu::target("avx2,fma")]] double load_32(const void* from, size_t bytes, void* sums, int rounds) {
  return Loops<Vector32>::load(static_cast<const Vector32*>(from), bytes / sizeof(Vector32),
                               static_cast<Vector32*>(sums), rounds);
}
[[gnu::target("avx512f,fma")]] double multiply_and_add_64(void* sums, int rounds) {
  return Loops<Vector64>::multiply_and_add(static_cast<Vector64*>(sums), rounds);
}
[[gnu::target("avx512f,fma")]] double load_64(const void* from, size_t bytes, void* sums, int rounds) {
  return Loops<Vector64>::load(static_cast<const Vector64*>(from), bytes / sizeof(Vector64),
                               static_cast<Vector64*>(sums), rounds);
}
#endif

#if !defined(__clang__)
#pragma GCC pop_options
#endif

// The loops of one instruction set.
struct Loop {
  double (*multiply_and_add)(void* sums, int rounds);
  double (*load)(const void* from, size_t bytes, void* sums, int rounds);
};

std::vector<Loop> loops_of_this_processor() {
  std::vector<Loop> loops = {{multiply_and_add_16, load_16}};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) loops.push_back({multiply_and_add_32, load_32});
  if (__builtin_cpu_supports("avx512f")) loops.push_back({multiply_and_add_64, load_64});
#endif
  return loops;
}

struct alignas(64) Sums {
  char bytes[64 * kAccumulators] = {};  // NOLINT(modernize-avoid-c-arrays): memory for any type
};

// The highest rate of several runs.
template <class Work>
double highest_rate(const Work& work) {
  double highest = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const double begin = now();
    const double done = work();
    highest = std::max(highest, done / std::max(now() - begin, 1e-9));
  }
  return highest;
}

double flop_rate(const Loop& loop) {
  constexpr int kRounds = 4000;
  Sums sums;
  return highest_rate([&] {
    const double flop = loop.multiply_and_add(&sums, kRounds);
    use(sums);
    return flop;
  });
}

double cache_rate(const Loop& loop) {
  constexpr int kRounds = 400;
  const std::vector<Sums> buffer(kCachedBytes / sizeof(Sums) + 1);
  Sums sums;
  return highest_rate([&] {
    const double bytes = loop.load(buffer.data(), kCachedBytes, &sums, kRounds);
    use(sums);
    return bytes;
  });
}

// All threads read their shares of a buffer that is larger than the cache.
double memory_rate(const Loop& loop, const CeilingOptions& options) {
  constexpr int kPasses = 3;
  const auto bytes = static_cast<size_t>(std::min(2 * options.last_level_cache, kMostMemory));
  const size_t share = bytes / static_cast<size_t>(options.threads) / sizeof(Sums);
  const std::vector<Sums> buffer(share * static_cast<size_t>(options.threads));
  double highest = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double begin = now();
    std::vector<std::thread> threads;
    for (int k = 0; k < options.threads; ++k)
      threads.emplace_back([&, k] {
        Sums sums;
        loop.load(buffer.data() + static_cast<size_t>(k) * share, share * sizeof(Sums), &sums, 1);
        use(sums);
      });
    for (std::thread& thread : threads) thread.join();
    highest = std::max(highest, static_cast<double>(buffer.size() * sizeof(Sums)) / (now() - begin));
  }
  return highest;
}

}  // namespace

Ceilings measure_ceilings(const CeilingOptions& options) {
  Ceilings ceilings;
  const std::vector<Loop> loops = loops_of_this_processor();
  for (const Loop& loop : loops) {
    ceilings.flop = std::max(ceilings.flop, kCeilingMargin * flop_rate(loop));
    ceilings.cache_bytes = std::max(ceilings.cache_bytes, kCeilingMargin * kLoadsAndStores * cache_rate(loop));
  }
  if (options.last_level_cache > 0) ceilings.memory_bytes = kMemoryMargin * memory_rate(loops.back(), options);
  return ceilings;
}

}  // namespace millrace
