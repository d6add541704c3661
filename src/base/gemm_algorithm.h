// What a candidate says of a library's product, and the device understands.
#pragma once

namespace millrace {

// One of cuBLASLt's algorithms, by its attributes: numbers of the library's own, which mean the same in every process.
struct GemmAlgorithm {
  int id = -1;  // -1: what the library's heuristic takes
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
