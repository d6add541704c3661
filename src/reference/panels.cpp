#include "reference/panels.h"

namespace millrace {
namespace {

// One body for all vector widths: the compiler splits these vectors into those of the processor.
using Vector [[gnu::vector_size(kPanelColumns * sizeof(double)), gnu::aligned(alignof(double))]] = double;

[[gnu::always_inline]] inline void multiply_body(const double* a, const double* b, int64_t depth, double* sums) {
  Vector total[kPanelRows] = {};  // NOLINT(modernize-avoid-c-arrays): a template would drop the type's attributes
  for (int64_t k = 0; k < depth; ++k) {
    const Vector row = *reinterpret_cast<const Vector*>(b + k * kPanelColumns);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kPanelRows; ++i) total[i] += a[k * kPanelRows + i] * row;
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kPanelRows; ++i) *reinterpret_cast<Vector*>(sums + i * kPanelColumns) += total[i];
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void multiply_avx512(const double* a, const double* b, int64_t depth, double* sums) {
  multiply_body(a, b, depth, sums);
}

[[gnu::target("avx2,fma")]] void multiply_avx2(const double* a, const double* b, int64_t depth, double* sums) {
  multiply_body(a, b, depth, sums);
}
#endif

void multiply_plain(const double* a, const double* b, int64_t depth, double* sums) { multiply_body(a, b, depth, sums); }

auto* fastest_multiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2;
#endif
  return multiply_plain;
}

}  // namespace

void multiply_panels(const double* a, const double* b, int64_t depth, double* sums) {
  static auto* const kMultiply = fastest_multiply();
  kMultiply(a, b, depth, sums);
}

}  // namespace millrace
