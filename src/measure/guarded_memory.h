// Memory for the buffers of a trial, with red zones: bytes before and after each buffer that a candidate must not
// write. Also fingerprints of memory, to notice a change without a copy. Test: tests/measure/guarded_memory_test.cpp
#pragma once

#include <cstdint>

#include "measure/tensor_memory.h"

namespace millrace {

// Aligned to 4096 bytes, uninitialized except for the red zones.
class GuardedMemory {
 public:
  explicit GuardedMemory(int64_t bytes);
  char* data() const;
  int64_t size() const { return size_; }
  // Whether nothing was written to the red zones.
  bool is_intact() const;

 private:
  int64_t size_ = 0;
  Memory memory_;
};

// A fingerprint: it changes if any one byte changes, and after almost every other change.
uint64_t fingerprint(const void* data, int64_t bytes);

}  // namespace millrace
