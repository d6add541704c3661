// The algorithm of a library product: candidates name it, and the device runs it. Tests: tests/device/cuda/.
#pragma once

namespace millrace {

// The attributes of one cuBLASLt algorithm. The library defines the numbers; they mean the same in every process.
struct GemmAlgorithm {
  int id = -1;  // -1: chosen by the library's heuristic
  int tile = 0;
  int stages = 0;
  int split_k = 1;
  int reduction = 0;
  int swizzle = 0;
  int custom = 0;
  int inner_shape = 0;
  int cluster = 0;

  bool operator==(const GemmAlgorithm&) const = default;
};

}  // namespace millrace
