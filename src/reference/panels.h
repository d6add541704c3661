// The inner loop of large contractions: a product of two packed panels. Tests: tests/reference/contraction_test.cpp.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kPanelRows = 6;
inline constexpr int64_t kPanelColumns = 8;

// sums[i][j] += Σ a[k][i] · b[k][j] for k < depth. a has kPanelRows values for each k, b and sums have kPanelColumns
// values for each k and i.
void multiply_panels(const double* a, const double* b, int64_t depth, double* sums);

}  // namespace millrace
