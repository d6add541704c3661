// The loops around a product: which iterations have their own part of C, and where each one's matrices are.
// Test: tests/device/blas_test.cpp
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/gemm_call.h"

namespace millrace {

inline bool sums(const GemmLoop& loop) { return loop.c == 0; }

struct GemmOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
  int64_t v = 0;
};

// Loops of one kind, innermost first.
class GemmLoops {
 public:
  void add(const GemmLoop& loop) {
    loops_.insert(loops_.begin(), loop);
    steps_ *= loop.extent;
  }
  int64_t steps() const { return steps_; }

  // The tensors' positions at an iteration, the innermost loop fastest.
  GemmOffsets at(int64_t step) const {
    GemmOffsets offsets;
    for (const GemmLoop& loop : loops_) {
      const int64_t index = step % loop.extent;
      step /= loop.extent;
      offsets.a += index * loop.a;
      offsets.b += index * loop.b;
      offsets.c += index * loop.c;
      offsets.v += index * loop.v;
    }
    return offsets;
  }

 private:
  std::vector<GemmLoop> loops_;
  int64_t steps_ = 1;
};

struct SplitLoops {
  GemmLoops outer;    // each iteration has its own part of C
  GemmLoops summing;  // all iterations add to the same part
};

// `swapped`: the product is computed as Cᵀ = Bᵀ·Aᵀ.
inline SplitLoops split_loops(const GemmCall& call, bool swapped) {
  SplitLoops split;
  for (GemmLoop loop : call.loops) {
    if (loop.extent == 1) continue;
    if (swapped) std::swap(loop.a, loop.b);
    (sums(loop) ? split.summing : split.outer).add(loop);
  }
  return split;
}

}  // namespace millrace
