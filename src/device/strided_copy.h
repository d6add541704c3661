// An operand of a product that is copied into scratch memory as a dense matrix before the product reads it: the windows
// of a convolution overlap, so that no library can read them in place (im2col).
// Tests: tests/device/strided_copy_test.cpp, tests/measure/unfolded_trials_test.cpp
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct CopyAxis {
  int64_t extent = 1;
  int64_t stride = 0;  // in the source, in elements; may be negative

  bool operator==(const CopyAxis&) const = default;
};

// The copy is dense, its first axis is the outermost.
struct StridedCopy {
  int64_t first = 0;  // the element of the source where all indices are zero
  std::vector<CopyAxis> axes;

  bool empty() const { return axes.empty(); }
  int64_t elements() const {
    int64_t count = 1;
    for (const CopyAxis& axis : axes) count *= axis.extent;
    return empty() ? 0 : count;
  }
  // Adds the next inner axis: as one with the last, if the source's strides allow it.
  void add(const CopyAxis& axis) {
    if (!axes.empty() && axes.back().stride == axis.stride * axis.extent)
      axes.back() = {axes.back().extent * axis.extent, axis.stride};
    else
      axes.push_back(axis);
  }
};

}  // namespace millrace
