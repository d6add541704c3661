// Counts the bytes that a fuzzer was given, and prints the number at the end: libFuzzer counts only runs. Read by
// tests/campaigns/parsers.py.
#pragma once

#include <cstddef>
#include <cstdio>

namespace millrace {

class CountedBytes {
 public:
  CountedBytes() = default;
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;
  ~CountedBytes() { std::fprintf(stderr, "\nfuzzed %zu bytes in %zu inputs\n", bytes_, inputs_); }

  void add(size_t size) {
    bytes_ += size;
    ++inputs_;
  }

 private:
  size_t bytes_ = 0;
  size_t inputs_ = 0;
};

inline CountedBytes counted_bytes;

}  // namespace millrace
